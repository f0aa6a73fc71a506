//! A master that offers, loses, kills and forgets as it likes, and what has to hold whatever it does.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::mesos::value::Scalar;

const CORES_MAX: u32 = 12;
const AGENTS: u32 = 4;

#[derive(Debug, Clone)]
enum Step {
    /// Offers what is free on an agent, in so many pieces.
    Offer {
        agent: u32,
        pieces: u32,
    },
    /// Something becomes of a task; maybe told twice.
    Update {
        task: usize,
        state: &'static str,
        twice: bool,
    },
    Total(u32),
    Kill(usize),
    /// The calls of a while are lost, and the stream with them.
    Disconnect {
        lost: bool,
    },
    /// Another process with what was written down last.
    Restart,
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let state = prop::sample::select(vec![
        "TASK_STARTING",
        "TASK_RUNNING",
        "TASK_RUNNING",
        "TASK_FINISHED",
        "TASK_FAILED",
        "TASK_KILLED",
        "TASK_UNREACHABLE",
        "TASK_GONE",
        "TASK_DROPPED",
        "TASK_ERROR",
    ]);
    prop_oneof![
        5 => (0..AGENTS, 1..4_u32).prop_map(|(agent, pieces)| Step::Offer { agent, pieces }),
        4 => (0..8_usize, state, any::<bool>())
            .prop_map(|(task, state, twice)| Step::Update { task, state, twice }),
        1 => (0..8_u32).prop_map(Step::Total),
        1 => (0..8_usize).prop_map(Step::Kill),
        1 => any::<bool>().prop_map(|lost| Step::Disconnect { lost }),
        1 => Just(Step::Restart),
        2 => (0..400_u32).prop_map(Step::Wait),
    ]
}

/// What the master knows.
#[derive(Debug, Default)]
struct Master {
    /// Task, its agent, its cores.
    tasks: BTreeMap<TaskId, (AgentId, u32)>,
    launched: BTreeSet<TaskId>,
    acknowledged: u32,
    suppressed: bool,
    next_offer: u32,
}

impl Master {
    fn free(&self, agent: &AgentId) -> u32 {
        let used = self.tasks.values().filter(|(on, _)| on == agent).map(|(_, cores)| cores);
        8 - used.sum::<u32>()
    }

    /// What is free there, in pieces.
    fn offers(&mut self, agent: &AgentId, pieces: u32) -> Vec<Value> {
        let free = self.free(agent);
        (0..pieces)
            .map(|piece| {
                let cpus = free / pieces + if piece == 0 { free % pieces } else { 0 };
                self.next_offer += 1;
                offer(&self.next_offer.to_string(), agent.as_str(), cpus * M, cpus)
            })
            .collect()
    }
}

/// Everything that was said, looked at by the master; `None` for a master that is not reached.
fn hear(bed: &mut Bed, mut master: Option<&mut Master>, offered: &[Value]) -> Snapshot {
    let mut saved = bed.coarse.snapshot();
    let mut open: BTreeMap<&str, f64> =
        offered.iter().map(|o| (o["id"]["value"].as_str().unwrap(), sum(o, "cpus"))).collect();
    while let Some(action) = bed.coarse.poll_action() {
        match (action, master.as_deref_mut()) {
            (Action::Save, _) => saved = bed.coarse.snapshot(),
            (Action::Call(Call::Accept { offer_ids, task_infos, .. }), Some(master)) => {
                let offered: f64 =
                    offer_ids.iter().map(|id| open.remove(id.as_str()).unwrap()).sum();
                let mut taken = 0.0;
                for task in &task_infos {
                    let cpus = sum(&serde_json::to_value(task).unwrap(), "cpus");
                    taken += cpus;
                    assert!(master.launched.insert(task.task_id.clone()), "an id came twice");
                    assert!(saved.tasks.iter().any(|t| t.id == task.task_id), "not written down");
                    let cores = Scalar::from_f64(cpus).floor();
                    master.tasks.insert(task.task_id.clone(), (task.agent_id.clone(), cores));
                }
                assert!(taken <= offered, "{taken} of {offered}");
            }
            (Action::Call(Call::Decline { offer_ids, .. }), Some(_)) => {
                for id in &offer_ids {
                    open.remove(id.as_str()).unwrap();
                }
            }
            (Action::Call(Call::Acknowledge { .. }), Some(master)) => master.acknowledged += 1,
            (Action::Call(Call::Suppress), Some(master)) => master.suppressed = true,
            (Action::Call(Call::Revive), Some(master)) => master.suppressed = false,
            _ => {}
        }
    }
    assert!(master.is_none() || open.is_empty(), "an offer was kept: {open:?}");
    saved
}

proptest! {
    #[test]
    fn whatever_happens_no_more_is_taken_than_is_allowed_and_nothing_goes_unanswered(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let entries = [("spark.cores.max", "12"), ("spark.executor.cores", "2")];
        let mut master = Master::default();
        let mut bed = Bed::new(&entries);
        let mut saved = hear(&mut bed, Some(&mut master), &[]);
        for step in steps {
            match step {
                Step::Offer { agent, pieces } => {
                    let offers = master.offers(&AgentId::from(agent.to_string()), pieces);
                    let parse = |o: &Value| serde_json::from_value(o.clone()).unwrap();
                    bed.coarse.handle_offers(offers.iter().map(parse).collect(), bed.now);
                    saved = hear(&mut bed, Some(&mut master), &offers);
                }
                Step::Update { task, state, twice } => {
                    let Some((id, (agent, _))) = master.tasks.iter().nth(task) else { continue };
                    let status = json!({
                        "task_id": id, "agent_id": agent, "state": state, "uuid": "dXVpZA=="
                    });
                    let status = serde_json::from_value(status).unwrap();
                    if !matches!(state, "TASK_STARTING" | "TASK_RUNNING" | "TASK_UNREACHABLE") {
                        let id = id.clone();
                        master.tasks.remove(&id);
                    }
                    for _ in 0..=u32::from(twice) {
                        let before = master.acknowledged;
                        bed.coarse.handle_update(&status, bed.now);
                        saved = hear(&mut bed, Some(&mut master), &[]);
                        prop_assert_eq!(master.acknowledged, before + 1);
                    }
                }
                Step::Total(total) => {
                    bed.coarse.request_total(total, BTreeSet::new(), bed.now);
                    saved = hear(&mut bed, Some(&mut master), &[]);
                }
                Step::Kill(task) => {
                    let id = bed.coarse.executors().nth(task).map(|executor| executor.id.clone());
                    bed.coarse.kill(&id.into_iter().collect::<Vec<_>>());
                    saved = hear(&mut bed, Some(&mut master), &[]);
                }
                Step::Disconnect { lost } => {
                    if lost {
                        // Offers that arrived, and whose launches never did.
                        let offers = master.offers(&AgentId::from("0"), 1);
                        let parse = |o: &Value| serde_json::from_value(o.clone()).unwrap();
                        bed.coarse.handle_offers(offers.iter().map(parse).collect(), bed.now);
                        hear(&mut bed, None, &[]);
                    }
                    bed.coarse.handle_disconnected();
                    master.suppressed = bed.coarse.is_suppressed();
                    bed.coarse.handle_subscribed(bed.now);
                    let unknown = bed.coarse.executors().map(|executor| executor.id.clone());
                    let unknown: Vec<_> = unknown.filter(|id| !master.tasks.contains_key(id)).collect();
                    saved = hear(&mut bed, Some(&mut master), &[]);
                    for id in unknown {
                        let status = json!({
                            "task_id": id, "state": "TASK_UNKNOWN", "reason": "REASON_RECONCILIATION"
                        });
                        bed.coarse.handle_update(&serde_json::from_value(status).unwrap(), bed.now);
                        saved = hear(&mut bed, Some(&mut master), &[]);
                    }
                }
                Step::Restart => {
                    let now = bed.now;
                    bed = Bed::restored(&entries, saved);
                    bed.now = bed.now.max(now);
                    master.suppressed = false;
                    saved = hear(&mut bed, Some(&mut master), &[]);
                }
                Step::Wait(seconds) => {
                    let end = bed.now + Duration::from_secs(seconds.into());
                    while let Some(next) = bed.coarse.poll_timeout().filter(|next| *next <= end) {
                        bed.now = bed.now.max(next);
                        bed.coarse.handle_timeout(bed.now);
                        saved = hear(&mut bed, Some(&mut master), &[]);
                    }
                    bed.now = end;
                }
            }
            let held: u32 = bed.coarse.executors().map(|executor| executor.cores).sum();
            prop_assert_eq!(held, bed.coarse.cores());
            prop_assert!(held <= CORES_MAX, "{} cores", held);
            prop_assert_eq!(&saved, &bed.coarse.snapshot(), "something was not written down");
            prop_assert!(!bed.coarse.is_suppressed() || master.suppressed);
            let wants = held < CORES_MAX
                && bed.coarse.limit().is_none_or(|limit| bed.coarse.executors().count() < limit as usize);
            if wants && master.suppressed {
                // REVIVE may be held back for a second, and no longer.
                let soon = bed.now + Duration::from_secs(1);
                prop_assert!(bed.coarse.poll_timeout().is_some_and(|next| next <= soon));
            }
        }
    }
}
