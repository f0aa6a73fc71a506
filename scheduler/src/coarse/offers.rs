//! Which offers are used, and for what (`spec/spark-mesos-coarse.md` A5–A7).

use std::time::{Duration, Instant};

use super::agents::Barred;
use super::tasks::{Phase, Task};
use super::{Action, Coarse};
use crate::command::{Executor, command};
use crate::mesos::call::{Call, Filters};
use crate::mesos::event::Offer;
use crate::mesos::ids::{AgentId, OfferId, TaskId};
use crate::mesos::resource::Resource;
use crate::mesos::task::TaskInfo;
use crate::mesos::value::Scalar;
use crate::resources::{CPUS, GPUS, MEM, Remaining};

/// What is used as one: an offer, or all of one agent to one role.
struct Lot {
    offers: Vec<OfferId>,
    agent: AgentId,
    hostname: String,
    role: Option<String>,
    left: Remaining,
    tasks: Vec<TaskInfo>,
}

/// What is taken for one executor.
struct Share {
    cores: u32,
    gpus: u32,
    resources: Vec<Resource>,
}

impl Coarse {
    /// There is something to use. Each offer is answered at once.
    pub fn handle_offers(&mut self, offers: Vec<Offer>, now: Instant) {
        self.flow.offered(now);
        if self.stopping.is_some() {
            self.decline(offers, Filters::default());
        } else if self.is_limit_reached() {
            self.launching = false;
            self.decline(offers, self.unwanted());
        } else {
            if !std::mem::replace(&mut self.launching, true) {
                self.locality_since = now;
            }
            let meets = |offer: &Offer| self.conf.constraints.unmet(&offer.attributes).is_none();
            let (met, unmet): (Vec<Offer>, Vec<Offer>) = offers.into_iter().partition(meets);
            self.decline(unmet, refuse(self.conf.refuse_unmet));
            self.use_lots(self.lots(met), now);
        }
        self.handle_timeout(now);
    }

    fn lots(&self, offers: Vec<Offer>) -> Vec<Lot> {
        let mut lots: Vec<(Lot, Vec<Resource>)> = Vec::new();
        for offer in offers {
            let role = offer.allocation_info.and_then(|info| info.role);
            let same = |lot: &Lot| lot.agent == offer.agent_id && lot.role == role;
            let one_agent = self.conf.care.merge_offers;
            match lots.iter_mut().find(|(lot, _)| one_agent && same(lot)) {
                Some((lot, resources)) => {
                    lot.offers.push(offer.id);
                    resources.extend(offer.resources);
                }
                None => {
                    let lot = Lot {
                        offers: vec![offer.id],
                        agent: offer.agent_id,
                        hostname: offer.hostname,
                        role,
                        left: Remaining::default(),
                        tasks: Vec::new(),
                    };
                    lots.push((lot, offer.resources));
                }
            }
        }
        let whole = |(lot, resources)| Lot { left: Remaining::new(resources), ..lot };
        lots.into_iter().map(whole).collect()
    }

    /// One executor of each in turn, until none can take another.
    fn use_lots(&mut self, mut lots: Vec<Lot>, now: Instant) {
        loop {
            let mut launched = false;
            for lot in &mut lots {
                launched |= self.launch(lot, now);
            }
            if !launched {
                break;
            }
        }
        if lots.iter().any(|lot| !lot.tasks.is_empty()) {
            self.actions.push_back(Action::Save);
        }
        for mut lot in lots {
            if lot.tasks.is_empty() {
                let filters = self.refusal(&lot, now);
                self.call(Call::Decline { offer_ids: lot.offers, filters });
                continue;
            }
            lot.tasks.reverse();
            self.call(Call::Accept {
                offer_ids: lot.offers,
                task_infos: lot.tasks,
                filters: Filters::default(),
            });
        }
    }

    /// Launches an executor there, if one may be.
    fn launch(&mut self, lot: &mut Lot, now: Instant) -> bool {
        if self.is_limit_reached()
            || self.agents.barred(&lot.agent, &self.conf.care, now).is_some()
            || !self.is_local_enough(&lot.hostname, now)
        {
            return false;
        }
        let Some(share) = self.take(&mut lot.left) else { return false };
        let id = TaskId::from(self.next_task.to_string());
        self.next_task += 1;
        let executor = Executor { id: id.as_str(), hostname: &lot.hostname, cores: share.cores };
        lot.tasks.push(TaskInfo {
            name: format!("{} {id}", self.conf.framework.name),
            agent_id: lot.agent.clone(),
            resources: share.resources,
            command: Some(command(&self.conf.executor, &self.driver, executor)),
            container: Some(self.conf.executor.container.clone()),
            labels: self.conf.executor.labels.clone(),
            task_id: id.clone(),
        });
        self.agents.entry(&lot.agent, &lot.hostname).tasks.insert(id.clone());
        let task = Task {
            agent: lot.agent.clone(),
            cores: share.cores,
            gpus: share.gpus,
            phase: Phase::Staging { since: now, asked: false },
            killed: false,
            registered: false,
        };
        self.tasks.insert(id, task);
        true
    }

    /// Takes what an executor needs; nothing, if that is not there.
    fn take(&self, left: &mut Remaining) -> Option<Share> {
        let offered = left.amount(CPUS).floor();
        let free =
            self.conf.cores_max.map_or(u32::MAX, |max| max.saturating_sub(self.tasks.cores()));
        let cores = self.conf.executor.cores.unwrap_or_else(|| offered.min(free));
        if cores == 0 || cores > free {
            return None;
        }
        let gpus = self.conf.gpus_max.saturating_sub(self.tasks.gpus());
        let gpus = gpus.min(left.amount(GPUS).floor());
        let mut rest = left.clone();
        let mut resources = rest.take(CPUS, Scalar::whole(cores))?;
        resources.extend(rest.take(MEM, Scalar::whole(self.conf.executor.memory_mib))?);
        resources.extend(rest.take_ports(&self.conf.executor.ports)?);
        resources.extend(rest.take(GPUS, Scalar::whole(gpus))?);
        *left = rest;
        Some(Share { cores, gpus, resources })
    }

    /// Whether this host is one that the driver would like and that has no executor, or those were waited for
    /// long enough (A12).
    fn is_local_enough(&self, hostname: &str, now: Instant) -> bool {
        if self.preferred.is_empty()
            || now.saturating_duration_since(self.locality_since) > self.conf.locality_wait
        {
            return true;
        }
        let there = |tasks: usize, name: &str| tasks > 0 && name == hostname;
        self.preferred.contains(hostname)
            && !self.agents.iter().any(|(_, agent)| there(agent.tasks.len(), &agent.hostname))
    }

    /// For how long what is not used stays away.
    fn refusal(&self, lot: &Lot, now: Instant) -> Filters {
        if self.conf.cores_max.is_some_and(|max| self.tasks.cores() >= max) {
            return refuse(self.conf.refuse_max_cores);
        }
        match self.agents.barred(&lot.agent, &self.conf.care, now) {
            _ if self.is_limit_reached() => self.unwanted(),
            Some(Barred::Excluded { .. }) => self.unwanted(),
            _ => Filters::default(),
        }
    }

    /// Spark has what it does not want offered again after five seconds.
    fn unwanted(&self) -> Filters {
        if self.conf.care.suppress { refuse(self.conf.refuse_unmet) } else { Filters::default() }
    }

    fn decline(&mut self, offers: Vec<Offer>, filters: Filters) {
        if !offers.is_empty() {
            let offer_ids = offers.into_iter().map(|offer| offer.id).collect();
            self.call(Call::Decline { offer_ids, filters });
        }
    }
}

fn refuse(time: Duration) -> Filters {
    Filters { refuse_seconds: Some(time.as_secs_f64()) }
}
