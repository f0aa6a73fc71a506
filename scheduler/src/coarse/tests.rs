//! The cases of `spec/spark-mesos-coarse.md` part C that are about the state machine, and what Spark's lacks.
//! (Those about keys, constraints, resources and command lines stand beside the modules that have the rules.)

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::conf::testing::conf;
use crate::mesos::call::{Filters, Request};
use crate::mesos::event::{Event, Offer};

mod simulation;

/// The memory of an executor with the default heap.
const M: u32 = 1408;

/// Spark's own ways, where ours are others.
const COMPAT: [(&str, &str); 8] = [
    ("shuffled.mesos.suppress", "false"),
    ("shuffled.mesos.reviveInterval", "off"),
    ("shuffled.mesos.reconcileInterval", "off"),
    ("shuffled.mesos.stagingTimeout", "off"),
    ("shuffled.mesos.unreachableGrace", "0"),
    ("shuffled.mesos.launchBackoff", "0"),
    ("shuffled.mesos.mergeOffers", "false"),
    ("shuffled.mesos.exclusion.expiry", "off"),
];

fn driver() -> DriverInfo {
    DriverInfo {
        url: "spark://CoarseGrainedScheduler@10.0.0.1:4040".to_owned(),
        app_id: "app-1".to_owned(),
    }
}

/// A backend with its time, subscribed.
struct Bed {
    coarse: Coarse,
    now: Instant,
}

impl Bed {
    fn new(entries: &[(&str, &str)]) -> Self {
        Self::restored(entries, Snapshot::default())
    }

    fn restored(entries: &[(&str, &str)], snapshot: Snapshot) -> Self {
        let app = ("spark.app.name", "test-mesos-dynamic-alloc");
        let entries: Vec<_> = [app].into_iter().chain(entries.iter().copied()).collect();
        let now = Instant::now();
        let mut coarse = Coarse::new(conf(&entries), driver(), snapshot, now);
        coarse.handle_subscribed(now);
        Self { coarse, now }
    }

    /// With Spark's own ways.
    fn compat(entries: &[(&str, &str)]) -> Self {
        Self::new(&COMPAT.iter().chain(entries).copied().collect::<Vec<_>>())
    }

    fn offers(&mut self, offers: &[Value]) -> Vec<String> {
        let parse = |offer: &Value| serde_json::from_value::<Offer>(offer.clone()).unwrap();
        self.coarse.handle_offers(offers.iter().map(parse).collect(), self.now);
        self.said()
    }

    fn update(&mut self, task: &str, agent: &str, state: &str) -> Vec<String> {
        self.status(
            &json!({"task_id": {"value": task}, "agent_id": {"value": agent}, "state": state}),
        )
    }

    fn status(&mut self, status: &Value) -> Vec<String> {
        let status = serde_json::from_value(status.clone()).unwrap();
        self.coarse.handle_update(&status, self.now);
        self.said()
    }

    fn total(&mut self, total: u32, hosts: &[&str]) -> Vec<String> {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.coarse.request_total(total, hosts, self.now);
        self.said()
    }

    fn after(&mut self, time: Duration) -> Vec<String> {
        let end = self.now + time;
        while let Some(next) = self.coarse.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.coarse.handle_timeout(self.now);
        }
        self.now = end;
        self.said()
    }

    /// What was done since the last time, in words.
    fn said(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.coarse.poll_action()).map(|action| words(&action)).collect()
    }

    /// The tasks that were launched since the last time, as JSON.
    fn launched(&mut self, offers: &[Value]) -> Vec<Value> {
        let parse = |offer: &Value| serde_json::from_value::<Offer>(offer.clone()).unwrap();
        self.coarse.handle_offers(offers.iter().map(parse).collect(), self.now);
        let mut tasks = Vec::new();
        while let Some(action) = self.coarse.poll_action() {
            if let Action::Call(Call::Accept { task_infos, .. }) = action {
                tasks.extend(task_infos.iter().map(|task| serde_json::to_value(task).unwrap()));
            }
        }
        tasks
    }
}

fn words(action: &Action) -> String {
    let all = |ids: &[String]| ids.join(",");
    let filter = |filters: &Filters| {
        filters.refuse_seconds.map_or(String::new(), |seconds| format!(" for {seconds}"))
    };
    match action {
        Action::Call(call) => {
            // What cannot be written is no call.
            serde_json::to_string(&Request { framework_id: None, call }).unwrap();
            let name = call.name();
            match call {
                Call::Accept { offer_ids, task_infos, filters } => {
                    let offers: Vec<_> = offer_ids.iter().map(ToString::to_string).collect();
                    let tasks: Vec<_> = task_infos.iter().map(|t| t.task_id.to_string()).collect();
                    format!("{name} {} with {}{}", all(&offers), all(&tasks), filter(filters))
                }
                Call::Decline { offer_ids, filters } => {
                    let offers: Vec<_> = offer_ids.iter().map(ToString::to_string).collect();
                    format!("{name} {}{}", all(&offers), filter(filters))
                }
                Call::Kill { task_id, agent_id: None } => format!("{name} {task_id}"),
                Call::Acknowledge { task_id, uuid, .. } => format!("{name} {task_id} {uuid}"),
                Call::Reconcile { tasks } => {
                    let tasks: Vec<_> = tasks
                        .iter()
                        .map(|task| {
                            let agent = task.agent_id.as_ref().map_or("?", AgentId::as_str);
                            format!("{}@{agent}", task.task_id)
                        })
                        .collect();
                    format!("{name} {}", all(&tasks)).trim_end().to_owned()
                }
                _ => name.to_owned(),
            }
        }
        Action::Save => "save".to_owned(),
        Action::RegisterShuffle { hostname } => format!("shuffle {hostname}"),
        Action::Tell(Told::Added { executor, hostname, cores }) => {
            format!("added {executor} on {hostname} with {cores}")
        }
        Action::Tell(Told::Lost { executor, reason }) => format!("lost {executor}: {reason}"),
        Action::Tell(Told::Excluded { hostname }) => format!("excluded {hostname}"),
        Action::Stopped { left, torn_down } => format!("stopped, left {left}, told {torn_down}"),
    }
}

fn scalar(name: &str, value: u32) -> Value {
    json!({"name": name, "type": "SCALAR", "scalar": {"value": value}, "allocation_info": {"role": "*"}})
}

fn offer(id: &str, agent: &str, mem: u32, cpus: u32) -> Value {
    offer_with(id, agent, &[scalar("mem", mem), scalar("cpus", cpus)])
}

fn offer_with(id: &str, agent: &str, resources: &[Value]) -> Value {
    json!({
        "id": {"value": id}, "framework_id": {"value": "f"}, "agent_id": {"value": agent},
        "hostname": format!("host{agent}"), "resources": resources, "allocation_info": {"role": "*"}
    })
}

/// Of one resource over all roles.
fn sum(task: &Value, name: &str) -> f64 {
    let resources = task["resources"].as_array().unwrap().iter();
    resources
        .filter(|resource| resource["name"] == name)
        .filter_map(|resource| resource["scalar"]["value"].as_f64())
        .sum()
}

/// Case 1. (Spark has the third offer come back by itself; here REVIVE brings it.)
#[test]
fn the_limit_holds_and_what_is_killed_is_killed() {
    let mut bed = Bed::new(&[]);
    assert_eq!(bed.offers(&[offer("o1", "s1", M, 4)]), ["save", "ACCEPT o1 with 0"]);
    assert_eq!(bed.total(0, &[]), ["SUPPRESS"]);
    bed.coarse.kill(&["0".into()]);
    assert_eq!(bed.said(), ["KILL 0"]);
    assert_eq!(bed.offers(&[offer("o2", "s2", M, 4)]), ["DECLINE o2 for 120"]);
    assert_eq!(bed.total(2, &[]), ["REVIVE"]);
    assert_eq!(
        bed.offers(&[offer("o3", "s2", M, 4)]),
        ["save", "ACCEPT o3 with 1", "SUPPRESS"],
        "0 counts until it has ended"
    );
    let mut spark = Bed::compat(&[]);
    assert_eq!(spark.offers(&[offer("o1", "s1", M, 4)]), ["save", "ACCEPT o1 with 0"]);
    assert!(spark.total(0, &[]).is_empty());
    assert_eq!(spark.offers(&[offer("o2", "s2", M, 4)]), ["DECLINE o2"]);
    assert!(spark.total(2, &[]).is_empty());
    assert_eq!(spark.offers(&[offer("o2", "s2", M, 4)]), ["save", "ACCEPT o2 with 1"]);
}

/// Case 2.
#[test]
fn a_killed_executor_is_launched_anew_after_one_revive() {
    let mut bed = Bed::new(&[("spark.executor.cores", "4")]);
    assert_eq!(
        bed.offers(&[offer("o1", "s1", M + 1024, 4), offer("o2", "s2", M + 1024, 1)]),
        ["save", "ACCEPT o1 with 0", "DECLINE o2"]
    );
    assert_eq!(
        bed.update("0", "s1", "TASK_KILLED"),
        ["save", "lost 0: Executor finished with state KILLED", "REVIVE"]
    );
    assert_eq!(bed.offers(&[offer("o3", "s2", M, 4)]), ["save", "ACCEPT o3 with 1"]);
}

/// Cases 3–6, 20.
#[test]
fn an_executor_is_as_large_as_it_is_said_to_be() {
    let cpus = |entries: &[(&str, &str)], offered: u32| {
        let tasks = Bed::new(entries).launched(&[offer("o1", "s1", M, offered)]);
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0]["name"], "test-mesos-dynamic-alloc 0");
        assert!((sum(&tasks[0], "mem") - f64::from(M)).abs() < 1e-9);
        sum(&tasks[0], "cpus")
    };
    assert!((cpus(&[("spark.executor.cores", "4")], 5) - 4.0).abs() < 1e-9);
    assert!((cpus(&[], 10) - 10.0).abs() < 1e-9);
    assert!((cpus(&[("spark.cores.max", "10")], 11) - 10.0).abs() < 1e-9);
    let gpus = |entries: &[(&str, &str)]| {
        let resources = [scalar("mem", 2 * M), scalar("cpus", 4), scalar("gpus", 6)];
        let tasks = Bed::new(entries).launched(&[offer_with("o1", "s1", &resources)]);
        tasks.iter().map(|task| sum(task, "gpus")).sum::<f64>()
    };
    assert!(gpus(&[]).abs() < 1e-9);
    assert!((gpus(&[("spark.mesos.gpus.max", "5")]) - 5.0).abs() < 1e-9);
    // The first takes them all.
    assert!(
        (gpus(&[("spark.mesos.gpus.max", "5"), ("spark.executor.cores", "2")]) - 5.0).abs() < 1e-9
    );
}

/// Cases 7–12.
#[test]
fn offers_are_used_in_turn_and_refused_for_as_long_as_it_is_said() {
    for (entries, offers, said) in [
        (
            vec![("spark.mesos.constraints", "x:true")],
            vec![offer("o1", "s1", M, 4)],
            vec!["DECLINE o1 for 120"],
        ),
        (
            vec![("spark.cores.max", "3")],
            vec![offer("o1", "s1", M, 4), offer("o2", "s2", M, 4)],
            vec!["save", "ACCEPT o1 with 0", "DECLINE o2 for 120", "SUPPRESS"],
        ),
        (
            vec![("spark.cores.max", "4"), ("spark.executor.cores", "3")],
            vec![offer("o1", "s1", M, 5), offer("o2", "s2", M, 5)],
            vec!["save", "ACCEPT o1 with 0", "DECLINE o2 for 120", "SUPPRESS"],
        ),
        (
            vec![
                ("spark.cores.max", "4"),
                ("spark.executor.cores", "2"),
                ("spark.mesos.rejectOfferDurationForReachedMaxCores", "90s"),
            ],
            vec![offer("o1", "s1", M, 5), offer("o2", "s2", M, 5), offer("o3", "s3", M, 5)],
            vec!["save", "ACCEPT o1 with 0", "ACCEPT o2 with 1", "DECLINE o3 for 90", "SUPPRESS"],
        ),
        (
            vec![("spark.cores.max", "8"), ("spark.executor.cores", "4")],
            vec![offer("o1", "s1", 2 * M, 8), offer("o2", "s2", 2 * M, 8)],
            vec!["save", "ACCEPT o1 with 0", "ACCEPT o2 with 1", "SUPPRESS"],
        ),
        (
            vec![("spark.executor.cores", "4")],
            vec![offer("o1", "s1", 2 * M, 8)],
            vec!["save", "ACCEPT o1 with 1,0"],
        ),
        // Too little memory for the second, and for any on the other.
        (
            vec![("spark.executor.cores", "4")],
            vec![offer("o1", "s1", 2 * M - 1, 8), offer("o2", "s2", M - 1, 8)],
            vec!["save", "ACCEPT o1 with 0", "DECLINE o2"],
        ),
    ] {
        assert_eq!(Bed::new(&entries).offers(&offers), said, "{entries:?}");
    }
}

/// Two offers of one agent that neither is enough alone; with Spark they never become one.
#[test]
fn offers_of_one_agent_are_used_as_one() {
    let halves = [offer("o1", "s1", M / 2, 2), offer("o2", "s1", M / 2, 2)];
    let four = ("spark.executor.cores", "4");
    assert_eq!(Bed::new(&[four]).offers(&halves), ["save", "ACCEPT o1,o2 with 0"]);
    assert_eq!(Bed::compat(&[four]).offers(&halves), ["DECLINE o1", "DECLINE o2"]);
    let mut other_role = halves;
    other_role[1]["allocation_info"]["role"] = json!("eng");
    assert_eq!(Bed::new(&[four]).offers(&other_role), ["DECLINE o1", "DECLINE o2"]);
}

/// Case 13; and after a task of an earlier run of the backend is heard of.
#[test]
fn the_driver_is_registered_once_with_each_agent_s_shuffle_service() {
    let entries = [("spark.shuffle.service.enabled", "true"), ("spark.executor.cores", "4")];
    let mut bed = Bed::new(&entries);
    bed.offers(&[offer("o1", "s1", M, 4)]);
    bed.offers(&[offer("o2", "s1", M, 4)]);
    assert_eq!(
        bed.update("0", "s1", "TASK_RUNNING"),
        ["shuffle hosts1", "added 0 on hosts1 with 4"]
    );
    assert_eq!(bed.update("1", "s1", "TASK_RUNNING"), ["added 1 on hosts1 with 4"]);
    assert!(bed.update("1", "s1", "TASK_RUNNING").is_empty());
    let mut again = Bed::restored(&entries, bed.coarse.snapshot());
    assert_eq!(again.said(), ["RECONCILE 0@s1,1@s1"]);
    assert_eq!(
        again.update("1", "s1", "TASK_RUNNING"),
        ["shuffle hosts1", "added 1 on hosts1 with 4"]
    );
    assert_eq!(again.offers(&[offer("o1", "s2", M, 4)]), ["save", "ACCEPT o1 with 2"]);
    assert_eq!(Bed::new(&[]).update("0", "s1", "TASK_RUNNING"), ["KILL 0"]);
}

/// Case 14.
#[test]
fn a_pinned_port_has_to_be_offered() {
    let ports = |begin: u32, end: u32| {
        let range = json!({"range": [{"begin": begin, "end": end}]});
        let ports = json!({"name": "ports", "type": "RANGES", "ranges": range});
        offer_with("o1", "s1", &[scalar("mem", 4 * M), scalar("cpus", 4), ports])
    };
    let pinned = [("spark.blockManager.port", "30100"), ("spark.executor.cores", "1")];
    assert_eq!(Bed::new(&pinned).offers(&[ports(31100, 31200)]), ["DECLINE o1"]);
    assert_eq!(Bed::new(&[]).offers(&[ports(31100, 31200)]), ["save", "ACCEPT o1 with 0"]);
    let tasks = Bed::new(&pinned).launched(&[ports(30000, 31000)]);
    assert_eq!(tasks.len(), 1, "a port is had once");
    let resources = tasks[0]["resources"].as_array().unwrap();
    let taken: Vec<_> = resources.iter().filter(|r| r["name"] == "ports").collect();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0]["ranges"], json!({"range": [{"begin": 30100, "end": 30100}]}));
}

/// Case 24.
#[test]
fn there_is_enough_once_enough_has_registered() {
    let entries =
        [("spark.scheduler.minRegisteredResourcesRatio", "1.0"), ("spark.cores.max", "1")];
    let mut bed = Bed::new(&entries);
    bed.offers(&[offer("o1", "s1", M, 4)]);
    assert!(!bed.coarse.has_sufficient_resources());
    bed.coarse.handle_registered(&"0".into());
    assert!(bed.coarse.has_sufficient_resources());
    assert!(Bed::new(&[]).coarse.has_sufficient_resources());
}

/// Case 25.
#[test]
fn a_wanted_host_is_waited_for() {
    let entries = [("spark.dynamicAllocation.enabled", "true"), ("spark.locality.wait", "1s")];
    let mut bed = Bed::compat(&entries);
    let offer = |bed: &mut Bed, agent: &str| {
        let said = bed.offers(&[offer("o", agent, M, 1)]);
        said[0] == "save"
    };
    assert!(!offer(&mut bed, "1"), "nothing was asked for");
    bed.total(2, &["host10", "host11"]);
    assert!(!offer(&mut bed, "1"));
    assert!(!offer(&mut bed, "2"));
    assert!(offer(&mut bed, "10"));
    assert!(!offer(&mut bed, "10"), "that host has its executor");
    bed.after(Duration::from_secs(2));
    assert!(offer(&mut bed, "1"));
    bed.total(3, &["host10", "host11", "host12"]);
    assert!(!offer(&mut bed, "3"));
    bed.after(Duration::from_secs(2));
    bed.total(4, &["host10", "host11", "host12", "host13"]);
    assert!(!offer(&mut bed, "3"), "a request starts the clock anew");
    assert!(offer(&mut bed, "13"));
    bed.after(Duration::from_secs(2));
    assert!(offer(&mut bed, "2"));
}

/// What says something against an agent excludes it at the second time, for an hour; Spark for ever, and
/// whatever it was.
#[test]
fn an_agent_on_which_executors_fail_is_left_alone_for_a_while() {
    let failed = |bed: &mut Bed, task: &str, reason: &str| {
        bed.status(&json!({
            "task_id": {"value": task}, "agent_id": {"value": "s1"}, "state": "TASK_FAILED", "reason": reason
        }))
    };
    let no_backoff = ("shuffled.mesos.launchBackoff", "0");
    let mut bed = Bed::new(&[no_backoff]);
    for task in ["0", "1"] {
        bed.offers(&[offer("o", "s1", M, 1)]);
        failed(&mut bed, task, "REASON_AGENT_REMOVED");
    }
    bed.offers(&[offer("o", "s1", M, 1)]);
    let said = failed(&mut bed, "2", "REASON_COMMAND_EXECUTOR_FAILED");
    assert_eq!(
        said[1],
        "lost 2: Executor finished with state FAILED; REASON_COMMAND_EXECUTOR_FAILED"
    );
    bed.offers(&[offer("o", "s1", M, 1)]);
    let said = failed(&mut bed, "3", "REASON_CONTAINER_LIMITATION_MEMORY");
    assert_eq!(said[0], "excluded hosts1");
    assert!(bed.coarse.barred(bed.now).any(|(host, _)| host == "hosts1"));
    assert_eq!(bed.offers(&[offer("o", "s1", M, 1)]), ["DECLINE o for 120"]);
    assert_eq!(bed.offers(&[offer("o", "s2", M, 1)]), ["save", "ACCEPT o with 4"]);
    bed.after(Duration::from_secs(3600));
    assert_eq!(bed.offers(&[offer("o", "s1", M, 1)]), ["save", "ACCEPT o with 5"]);

    let mut spark = Bed::compat(&[("shuffled.mesos.exclusion.countAll", "true")]);
    for task in ["0", "1"] {
        spark.offers(&[offer("o", "s1", M, 1)]);
        failed(&mut spark, task, "REASON_AGENT_REMOVED");
        // What comes twice counts once, unlike Spark's.
        failed(&mut spark, task, "REASON_AGENT_REMOVED");
        assert_eq!(spark.coarse.barred(spark.now).count(), usize::from(task == "1"));
    }
    spark.after(Duration::from_secs(1_000_000));
    assert_eq!(spark.offers(&[offer("o", "s1", M, 1)]), ["DECLINE o"]);
}

#[test]
fn after_a_failure_an_agent_is_given_time() {
    let mut bed = Bed::new(&[("shuffled.mesos.exclusion.failures", "off")]);
    let launches = |bed: &mut Bed| bed.offers(&[offer("o", "s1", M, 1)])[0] == "save";
    for (task, seconds) in [(0, 1), (1, 2), (2, 4)] {
        assert!(launches(&mut bed));
        bed.update(&task.to_string(), "s1", "TASK_FAILED");
        assert!(!launches(&mut bed));
        bed.after(Duration::from_millis(seconds * 1000 - 1));
        assert!(!launches(&mut bed));
        bed.after(Duration::from_millis(1));
    }
    assert!(launches(&mut bed));
    bed.update("3", "s1", "TASK_RUNNING");
    bed.update("3", "s1", "TASK_FAILED");
    bed.after(Duration::from_secs(1));
    assert!(launches(&mut bed), "one that ran makes it short again");
}

/// Spark takes cores back for each update, and raises an error for an agent that it does not know.
#[test]
fn an_update_that_comes_twice_or_of_something_unknown_is_acknowledged_and_no_more() {
    let mut bed = Bed::new(&[("spark.cores.max", "4"), ("spark.executor.cores", "2")]);
    bed.offers(&[offer("o1", "s1", 2 * M, 8)]);
    assert_eq!(bed.coarse.cores(), 4);
    let end = json!({
        "task_id": {"value": "0"}, "agent_id": {"value": "s1"}, "state": "TASK_FINISHED", "uuid": "dXVpZA=="
    });
    assert_eq!(
        bed.status(&end),
        [
            "save",
            "lost 0: Executor finished with state FINISHED",
            "ACKNOWLEDGE 0 dXVpZA==",
            "REVIVE"
        ]
    );
    assert_eq!(bed.status(&end), ["ACKNOWLEDGE 0 dXVpZA=="]);
    assert_eq!(bed.coarse.cores(), 2);
    let of_nobody = json!({"task_id": {"value": "9"}, "state": "TASK_LOST"});
    assert!(bed.status(&of_nobody).is_empty());
    let stray = json!({
        "task_id": {"value": "x"}, "agent_id": {"value": "s9"}, "state": "TASK_RUNNING", "uuid": "eA=="
    });
    assert_eq!(bed.status(&stray), ["KILL x", "ACKNOWLEDGE x eA=="]);
}

#[test]
fn an_agent_that_cannot_be_reached_is_waited_for() {
    let mut bed = Bed::new(&[("spark.cores.max", "4")]);
    bed.offers(&[offer("o1", "s1", M, 4)]);
    bed.update("0", "s1", "TASK_RUNNING");
    assert!(bed.update("0", "s1", "TASK_UNREACHABLE").is_empty());
    bed.after(Duration::from_secs(30));
    assert!(bed.update("0", "s1", "TASK_RUNNING").is_empty(), "it came back");
    bed.update("0", "s1", "TASK_UNREACHABLE");
    let said = bed.after(Duration::from_secs(60));
    assert_eq!(said[..2], ["save", "lost 0: its agent could not be reached for too long"]);
    assert_eq!(said[2], "REVIVE");
    assert_eq!(bed.update("0", "s1", "TASK_RUNNING"), ["KILL 0"], "nobody counts on it any more");
    let mut spark = Bed::compat(&[]);
    spark.offers(&[offer("o1", "s1", M, 4)]);
    assert_eq!(
        spark.update("0", "s1", "TASK_UNREACHABLE")[1],
        "lost 0: Executor finished with state LOST"
    );
}

#[test]
fn a_launch_that_nothing_is_heard_of_is_asked_for_and_given_up() {
    let mut bed =
        Bed::new(&[("spark.cores.max", "4"), ("shuffled.mesos.reconcileInterval", "off")]);
    bed.offers(&[offer("o1", "s1", M, 4)]);
    bed.after(Duration::from_secs(299));
    assert_eq!(bed.after(Duration::from_secs(1)), ["RECONCILE 0@s1"]);
    let said = bed.after(Duration::from_secs(300));
    assert_eq!(said, ["KILL 0", "save", "lost 0: nothing was heard of its launch", "REVIVE"]);
}

/// What was lost while nobody was there is asked for, less and less often, until it is answered.
#[test]
fn after_a_subscription_all_tasks_are_asked_for_until_they_are_known() {
    let entries = [("spark.executor.cores", "4"), ("shuffled.mesos.stagingTimeout", "off")];
    let mut bed = Bed::new(&entries);
    bed.offers(&[offer("o1", "s1", M, 4), offer("o2", "s2", M, 4)]);
    bed.coarse.kill(&["1".into()]);
    bed.said();
    bed.coarse.handle_disconnected();
    assert!(bed.after(Duration::from_secs(100)).is_empty());
    bed.coarse.handle_subscribed(bed.now);
    assert_eq!(bed.said(), ["KILL 1", "RECONCILE 0@s1,1@s2"]);
    bed.update("0", "s1", "TASK_RUNNING");
    let asked = |said: Vec<String>| said.iter().filter(|s| *s == "RECONCILE 1@s2").count();
    // After 5, 15, 35 and 75 seconds.
    assert_eq!(asked(bed.after(Duration::from_secs(74))), 3);
    assert_eq!(asked(bed.after(Duration::from_secs(1))), 1);
    bed.update("1", "s2", "TASK_GONE");
    assert_eq!(asked(bed.after(Duration::from_secs(700))), 0);
    let said = bed.after(Duration::from_secs(900));
    assert!(said.contains(&"RECONCILE".to_owned()), "{said:?}");
}

#[test]
fn offers_are_asked_for_again_while_something_is_wanted() {
    let mut bed = Bed::new(&[("shuffled.mesos.reconcileInterval", "off")]);
    let revives = |said: Vec<String>| said.iter().filter(|s| *s == "REVIVE").count();
    assert_eq!(revives(bed.after(Duration::from_secs(29))), 0);
    assert_eq!(revives(bed.after(Duration::from_secs(1))), 1);
    bed.offers(&[offer("o1", "s1", 1, 1)]);
    assert_eq!(revives(bed.after(Duration::from_secs(29))), 0);
    assert_eq!(revives(bed.after(Duration::from_secs(91))), 4);
    // However many end at once.
    let mut bed = Bed::new(&[("spark.executor.cores", "1")]);
    bed.offers(&[offer("o1", "s1", 20 * M, 20)]);
    let ends = (0..20).flat_map(|task| bed.update(&task.to_string(), "s1", "TASK_KILLED"));
    assert_eq!(ends.filter(|said| said == "REVIVE").count(), 1);
    assert_eq!(revives(bed.after(Duration::from_secs(1))), 1, "for those after the first");
}

#[test]
fn a_backend_without_need_subscribes_without_offers() {
    let mut bed = Bed::new(&[("spark.dynamicAllocation.enabled", "true")]);
    assert_eq!(bed.said(), ["SUPPRESS"]);
    assert!(bed.coarse.is_suppressed());
    bed.coarse.handle_disconnected();
    assert!(bed.total(1, &[]).is_empty());
    bed.coarse.handle_subscribed(bed.now);
    assert_eq!(bed.said(), ["REVIVE"]);
    assert!(!bed.coarse.is_suppressed());
}

/// A14.
#[test]
fn the_end_waits_for_executors_but_not_for_ever() {
    let mut bed = Bed::new(&[("spark.executor.cores", "4")]);
    bed.offers(&[offer("o1", "s1", 2 * M, 8)]);
    bed.coarse.stop(bed.now);
    assert_eq!(bed.said(), ["KILL 0", "KILL 1"]);
    bed.coarse.stop(bed.now);
    assert!(bed.said().is_empty(), "it is said once");
    assert_eq!(bed.offers(&[offer("o2", "s2", M, 4)]), ["DECLINE o2"]);
    assert_eq!(bed.update("0", "s1", "TASK_KILLED"), ["save"]);
    assert!(bed.after(Duration::from_millis(9_999)).is_empty());
    assert_eq!(bed.after(Duration::from_millis(1)), ["TEARDOWN", "stopped, left 1, told true"]);
    assert!(bed.after(Duration::from_secs(100)).is_empty());

    let mut quick = Bed::new(&[]);
    quick.coarse.stop(quick.now);
    assert_eq!(quick.said(), ["TEARDOWN", "stopped, left 0, told true"]);

    let mut alone = Bed::new(&[("spark.mesos.coarse.shutdownTimeout", "2s")]);
    alone.coarse.handle_disconnected();
    alone.coarse.stop(alone.now);
    assert!(alone.said().is_empty(), "the master may come back");
    assert_eq!(alone.after(Duration::from_secs(2)), ["stopped, left 0, told false"]);
}

/// What the whole of it looks like from an event of the master's.
#[test]
fn events_of_the_master_are_what_the_backend_is_told() {
    let event = json!({"type": "OFFERS", "offers": {"offers": [offer("o1", "s1", M, 4)]}});
    let Event::Offers(offers) = Event::parse(event.to_string().as_bytes()).unwrap() else {
        panic!("{event}");
    };
    let mut bed = Bed::new(&[]);
    bed.coarse.handle_offers(offers, bed.now);
    assert_eq!(bed.said(), ["save", "ACCEPT o1 with 0"]);
}
