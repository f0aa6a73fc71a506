//! Runs the coarse-grained backend: joins what decides ([`Coarse`], [`Link`]) to the master, the shuffle
//! services, the state file and the host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use shuffle_protocol::AppId;
use shuffled_client::{
    ClientOptions, DriverOptions, DriverRegistration, ServerAddr, ShuffleServiceClient,
};
use tokio::sync::mpsc;

use crate::coarse::{Action, Coarse, Told};
use crate::command::DriverInfo;
use crate::conf::{CoarseConf, FrameworkConf, ShuffleConf};
use crate::framework::framework_info;
use crate::link::{Answer, Fatal, Link, Todo};
use crate::masters::Masters;
use crate::mesos::call::{Call, Request};
use crate::mesos::event::Event;
use crate::mesos::ids::{FrameworkId, TaskId};
use crate::session::{FromMaster, Session};
use crate::state_file::{Saved, StateFile};

/// Whoever executors are run for.
pub trait Host: Send {
    /// Something became of an executor or an agent.
    fn told(&mut self, told: Told);
}

/// What a backend is made of.
#[derive(Debug)]
pub struct Backend {
    /// Spark's keys, checked.
    pub conf: CoarseConf,
    /// The driver that executors register with.
    pub driver: DriverInfo,
    /// Whom to subscribe with.
    pub masters: Masters,
    /// What is kept over a restart, and where; without it a restart is a new framework.
    pub state: Option<StateFile>,
    /// What was kept.
    pub saved: Saved,
    /// For the connections to shuffle services.
    pub shuffle_options: ClientOptions,
    /// Spreads the waits of many backends.
    pub seed: u64,
}

/// How a backend ended in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Executors that did not end in time; their temporary files may stay.
    pub left: usize,
    /// The master was told. If not, it ends what is left after the failover timeout.
    pub torn_down: bool,
}

/// What a host asks of a running backend. Requests to one that has ended are lost.
#[derive(Debug, Clone)]
pub struct Handle(mpsc::UnboundedSender<Command>);

#[derive(Debug)]
enum Command {
    Total { executors: u32, hosts: BTreeSet<String> },
    Kill(Vec<TaskId>),
    Registered(TaskId),
    Stop,
}

impl Handle {
    /// So many executors in all, if possible on these hosts.
    pub fn request_total(&self, executors: u32, hosts: BTreeSet<String>) {
        self.send(Command::Total { executors, hosts });
    }

    /// These executors are to end.
    pub fn kill(&self, executors: Vec<TaskId>) {
        self.send(Command::Kill(executors));
    }

    /// An executor registered with the driver.
    pub fn registered(&self, executor: TaskId) {
        self.send(Command::Registered(executor));
    }

    /// All is to end.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    fn send(&self, command: Command) {
        // It says in the type's description what becomes of these.
        let _ = self.0.send(command);
    }
}

/// The requests that a [`Handle`] makes.
#[derive(Debug)]
pub struct Requests(mpsc::UnboundedReceiver<Command>);

/// A handle for the host, and its other end for [`Backend::run`].
pub fn handle() -> (Handle, Requests) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Handle(sender), Requests(receiver))
}

impl Backend {
    /// Runs until [`Handle::stop`] has been carried out, or nothing can be done any more. Needs a tokio runtime.
    /// When the future is dropped instead, the connection is closed and the master waits for the failover timeout.
    ///
    /// # Errors
    /// As the variants of [`Fatal`] say.
    pub async fn run(self, host: &mut dyn Host, mut requests: Requests) -> Result<Ended, Fatal> {
        let now = Instant::now();
        let mut running = Running {
            framework: self.conf.framework.clone(),
            shuffle: self.conf.shuffle,
            link: Link::new(self.masters, self.seed, now),
            framework_id: self.saved.framework_id,
            coarse: Coarse::new(self.conf.clone(), self.driver.clone(), self.saved.snapshot, now),
            conf: self.conf,
            app_id: AppId::from(self.driver.app_id),
            state: self.state.map(std::sync::Arc::new),
            shuffle_options: self.shuffle_options,
            session: None,
            registrations: BTreeMap::new(),
        };
        let mut orphaned = false;
        loop {
            if let Some(ended) = running.act(host).await {
                running.close().await;
                return Ok(ended);
            }
            running.look_after_link(Instant::now());
            let timeouts = [running.coarse.poll_timeout(), running.link.poll_timeout()];
            let next = timeouts.into_iter().flatten().min();
            tokio::select! {
                request = requests.0.recv(), if !orphaned => match request {
                    Some(command) => running.command(command),
                    // Nobody can ask for anything any more: all goes on as it was asked for.
                    None => orphaned = true,
                },
                what = next_of(&mut running.session) => running.heard(what, Instant::now())?,
                () = sleep_until(next) => running.coarse.handle_timeout(Instant::now()),
            }
        }
    }
}

async fn next_of(session: &mut Option<Session>) -> FromMaster {
    match session {
        Some(session) => session.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

struct Running {
    conf: CoarseConf,
    framework: FrameworkConf,
    shuffle: Option<ShuffleConf>,
    app_id: AppId,
    link: Link,
    coarse: Coarse,
    framework_id: Option<FrameworkId>,
    state: Option<std::sync::Arc<StateFile>>,
    shuffle_options: ClientOptions,
    session: Option<Session>,
    /// By the agent's name.
    registrations: BTreeMap<String, DriverRegistration>,
}

impl Running {
    fn command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Total { executors, hosts } => self.coarse.request_total(executors, hosts, now),
            Command::Kill(executors) => self.coarse.kill(&executors),
            Command::Registered(executor) => self.coarse.handle_registered(&executor),
            Command::Stop => self.coarse.stop(now),
        }
    }

    /// Does what the state machine wants done.
    async fn act(&mut self, host: &mut dyn Host) -> Option<Ended> {
        while let Some(action) = self.coarse.poll_action() {
            match action {
                Action::Call(call) => self.call(&call),
                Action::Save => self.save().await,
                Action::RegisterShuffle { hostname } => self.register(hostname),
                Action::Tell(told) => host.told(told),
                Action::Stopped { left, torn_down } => return Some(Ended { left, torn_down }),
            }
        }
        None
    }

    fn call(&self, call: &Call) {
        // Without a session it is lost, as it would be with one that breaks: reconciliation finds out.
        if let Some(session) = &self.session {
            session.call(call.name(), self.body(call));
        }
    }

    fn body(&self, call: &Call) -> Bytes {
        let request = Request { framework_id: self.framework_id.as_ref(), call };
        serde_json::to_vec(&request)
            .expect("a call has texts for keys and no map of anything else")
            .into()
    }

    async fn save(&self) {
        let Some(state) = self.state.clone() else { return };
        let saved =
            Saved { framework_id: self.framework_id.clone(), snapshot: self.coarse.snapshot() };
        let written = tokio::task::spawn_blocking(move || state.write(&saved)).await;
        if let Err(error) = written.map_err(std::io::Error::from).flatten() {
            tracing::error!(%error, "cannot write the state file: a restart would not know the latest executors");
        }
    }

    fn register(&mut self, hostname: String) {
        let Some(shuffle) = self.shuffle else { return };
        let options = DriverOptions {
            timeout: shuffle.timeout,
            interval: shuffle.interval,
            ..DriverOptions::default()
        };
        let server = ServerAddr::new(&hostname, shuffle.port);
        let client = ShuffleServiceClient::new(server, self.shuffle_options.clone());
        match client.keep_registered(self.app_id.clone(), options) {
            Ok(registration) => {
                self.registrations.entry(hostname).or_insert(registration);
            }
            Err(error) => {
                tracing::error!(%hostname, %error, "cannot register with the shuffle service")
            }
        }
    }

    fn look_after_link(&mut self, now: Instant) {
        while let Some(todo) = self.link.poll(now) {
            match todo {
                Todo::Subscribe(master) => {
                    let info = framework_info(&self.conf, self.framework_id.clone());
                    let suppressed =
                        self.coarse.is_suppressed().then(|| self.framework.role.clone());
                    self.framework_id = info.id.clone();
                    let call = Call::Subscribe {
                        framework_info: info,
                        suppressed_roles: suppressed.into_iter().collect(),
                    };
                    let body = self.body(&call);
                    tracing::debug!(%master, "subscribing");
                    let credential = self.framework.credential.as_ref();
                    self.session = Some(Session::open(&master, credential, body));
                }
                Todo::Drop { why } => self.drop_session(&why),
            }
        }
    }

    fn drop_session(&mut self, why: &str) {
        tracing::warn!(master = %self.link.master(), %why, "the subscription is over; executors go on");
        self.session = None;
        self.coarse.handle_disconnected();
    }

    fn heard(&mut self, what: FromMaster, now: Instant) -> Result<(), Fatal> {
        match what {
            FromMaster::Answered(answer) => {
                if answer != Answer::Open {
                    tracing::info!(master = %self.link.master(), ?answer, "no subscription");
                    self.session = None;
                }
                self.link.handle_answer(answer, now)?;
            }
            FromMaster::Record(record) => {
                self.link.handle_record(now);
                match Event::parse(&record) {
                    Ok(event) => self.event(event, now)?,
                    Err(error) => tracing::error!(%error, "skipped an event"),
                }
            }
            FromMaster::Refused { call, why } => {
                tracing::error!(call, %why, "the master refuses a call");
            }
            FromMaster::Ended(why) => {
                self.drop_session(&why);
                self.link.handle_lost(now);
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event, now: Instant) -> Result<(), Fatal> {
        match event {
            Event::Subscribed { framework_id, heartbeat } => {
                tracing::info!(master = %self.link.master(), %framework_id, "subscribed");
                self.framework_id = Some(framework_id);
                self.link.handle_subscribed(heartbeat, now);
                self.coarse.handle_subscribed(now);
            }
            Event::Offers(offers) => self.coarse.handle_offers(offers, now),
            Event::Update(status) => self.coarse.handle_update(&status, now),
            Event::Error(message) => self.error(&message, now)?,
            // Updates say what became of executors; the rest is for people.
            Event::Failure { agent_id, executor_id } => {
                tracing::debug!(?agent_id, ?executor_id, "an executor ended, or an agent is gone");
            }
            Event::Rescind(_) | Event::Heartbeat | Event::Other(_) => {}
        }
        Ok(())
    }

    fn error(&mut self, message: &str, now: Instant) -> Result<(), Fatal> {
        self.drop_session(message);
        match self.link.handle_error(message, now) {
            // Known from an earlier run only, and away for too long. While it runs, somebody tore it down.
            Err(Fatal::Removed) if !self.link.is_established() && self.framework.id.is_none() => {
                tracing::warn!(
                    "the master has removed the framework of the state file; this is a new one"
                );
                self.framework_id = None;
                self.coarse.handle_removed(now);
                self.link.start_over(now);
                Ok(())
            }
            other => other,
        }
    }

    /// Waits for the last calls, and ends the heartbeats.
    async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            session.finish().await;
        }
        for (_, registration) in std::mem::take(&mut self.registrations) {
            registration.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::conf::testing::conf;
    use crate::fake_master::FakeMaster;

    struct Told(mpsc::UnboundedSender<crate::coarse::Told>);

    impl Host for Told {
        fn told(&mut self, told: crate::coarse::Told) {
            self.0.send(told).unwrap();
        }
    }

    fn backend(master: &FakeMaster, state: &std::path::Path) -> Backend {
        let (state, saved) = StateFile::open(state).unwrap();
        Backend {
            conf: conf(&[("spark.cores.max", "4")]),
            driver: DriverInfo { url: "spark://d@h:1".to_owned(), app_id: "app-1".to_owned() },
            masters: master.addr().to_string().parse().unwrap(),
            state: Some(state),
            saved,
            shuffle_options: ClientOptions::default(),
            seed: 1,
        }
    }

    fn offers() -> Value {
        let scalar = |name: &str, value: u32| json!({"name": name, "type": "SCALAR", "scalar": {"value": value}});
        json!({"type": "OFFERS", "offers": {"offers": [{
            "id": {"value": "o1"}, "agent_id": {"value": "s1"}, "hostname": "h1",
            "resources": [scalar("cpus", 4), scalar("mem", 4096)]
        }]}})
    }

    fn update(state: &str, uuid: &str) -> Value {
        json!({"type": "UPDATE", "update": {"status": {
            "task_id": {"value": "0"}, "agent_id": {"value": "s1"}, "state": state, "uuid": uuid
        }}})
    }

    fn subscribed(id: &str) -> Value {
        json!({"type": "SUBSCRIBED", "subscribed": {
            "framework_id": {"value": id}, "heartbeat_interval_seconds": 15.0
        }})
    }

    /// From the first subscription over a broken one and a restart of the backend to the end.
    #[tokio::test]
    async fn a_backend_launches_comes_back_and_ends_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let mut master = FakeMaster::start().await;
        let (tell, mut told) = mpsc::unbounded_channel();
        let first = backend(&master, &state);
        let (handle_1, requests) = handle();
        let mut host = Told(tell.clone());
        let first = tokio::spawn(async move { first.run(&mut host, requests).await });
        let (subscribe, mut stream) = master.subscription().await;
        assert!(subscribe.get("framework_id").is_none());
        stream.say(&subscribed("f-1")).await;
        stream.say(&offers()).await;
        let accept = master.call().await;
        assert_eq!(
            (&accept["type"], &accept["framework_id"]["value"]),
            (&json!("ACCEPT"), &json!("f-1"))
        );
        assert_eq!(master.call().await["type"], "SUPPRESS");
        stream.say(&update("TASK_RUNNING", "YQ==")).await;
        assert_eq!(master.call().await["acknowledge"]["uuid"], "YQ==");
        assert!(matches!(told.recv().await, Some(crate::coarse::Told::Added { cores: 4, .. })));

        // The stream breaks; it subscribes again as the same framework and asks for its executor.
        drop(stream);
        let (subscribe, mut stream) = master.subscription().await;
        assert_eq!(subscribe["framework_id"]["value"], "f-1");
        assert_eq!(subscribe["subscribe"]["framework_info"]["id"]["value"], "f-1");
        assert_eq!(subscribe["subscribe"]["suppressed_roles"], json!(["*"]));
        stream.say(&subscribed("f-1")).await;
        assert_eq!(master.call().await["reconcile"]["tasks"][0]["task_id"]["value"], "0");

        // It is killed and started anew: so does the next.
        first.abort();
        drop((first.await, stream, handle_1));
        let second = backend(&master, &state);
        let (handle, requests) = handle();
        let mut host = Told(tell);
        let second = tokio::spawn(async move { second.run(&mut host, requests).await });
        let (subscribe, mut stream) = master.subscription().await;
        assert_eq!(subscribe["framework_id"]["value"], "f-1");
        stream.say(&subscribed("f-1")).await;
        assert_eq!(master.call().await["type"], "RECONCILE");
        stream.say(&update("TASK_RUNNING", "Yg==")).await;
        handle.stop();
        let mut kinds = BTreeSet::new();
        while !kinds.contains("KILL") || !kinds.contains("ACKNOWLEDGE") {
            kinds.insert(master.call().await["type"].as_str().unwrap().to_owned());
        }
        stream.say(&update("TASK_KILLED", "Yw==")).await;
        assert_eq!(master.call().await["acknowledge"]["uuid"], "Yw==");
        assert_eq!(master.call().await["type"], "TEARDOWN");
        let ended = tokio::time::timeout(Duration::from_secs(60), second).await.unwrap().unwrap();
        assert_eq!(ended, Ok(Ended { left: 0, torn_down: true }));
    }

    #[tokio::test]
    async fn a_framework_of_the_state_file_that_is_gone_is_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (file, mut saved) = StateFile::open(&state).unwrap();
        saved.framework_id = Some("old".into());
        saved.snapshot.next_task = 7;
        file.write(&saved).unwrap();
        drop(file);
        let mut master = FakeMaster::start().await;
        let (tell, _told) = mpsc::unbounded_channel();
        let backend = backend(&master, &state);
        let (handle, requests) = handle();
        let mut host = Told(tell);
        let running = tokio::spawn(async move { backend.run(&mut host, requests).await });
        let removed = json!({"type": "ERROR", "error": {"message": "Framework has been removed"}});
        let (subscribe, mut stream) = master.subscription().await;
        assert_eq!(subscribe["framework_id"]["value"], "old");
        stream.say(&removed).await;
        let (subscribe, mut stream) = master.subscription().await;
        assert!(subscribe.get("framework_id").is_none(), "{subscribe}");
        stream.say(&subscribed("new")).await;
        stream.say(&offers()).await;
        let accept = master.call().await;
        let task = &accept["accept"]["operations"][0]["launch"]["task_infos"][0];
        assert_eq!(task["task_id"]["value"], "7", "ids go on");
        // While it runs, an operator's teardown is one.
        stream.say(&removed).await;
        assert_eq!(running.await.unwrap(), Err(Fatal::Removed));
        drop(handle);
    }
}
