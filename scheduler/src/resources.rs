//! What is left of an offer while executors are taken out of it (`spec/spark-mesos-coarse.md` A7).

use std::collections::BTreeSet;

use crate::mesos::resource::Resource;
use crate::mesos::value::{Range, Ranges, Scalar};

/// Number of CPUs, real.
pub const CPUS: &str = "cpus";
/// Memory, in MiB.
pub const MEM: &str = "mem";
/// Number of GPUs, whole.
pub const GPUS: &str = "gpus";
/// TCP ports.
pub const PORTS: &str = "ports";

/// Resources that nobody has taken yet, in the order of the offer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Remaining(Vec<Resource>);

impl Remaining {
    /// All of these.
    pub fn new(offered: Vec<Resource>) -> Self {
        Self(offered)
    }

    /// The sum over all roles and reservations.
    pub fn amount(&self, name: &str) -> Scalar {
        self.0.iter().map(|resource| resource.amount(name)).sum()
    }

    /// Takes a quantity, from the first that has any onwards. Each piece stays what it was offered as. Nothing is
    /// taken, and `None` returned, where there is less.
    pub fn take(&mut self, name: &str, amount: Scalar) -> Option<Vec<Resource>> {
        if self.amount(name) < amount {
            return None;
        }
        let mut wanted = amount;
        let mut taken = Vec::new();
        for resource in &mut self.0 {
            let here = resource.amount(name).min(wanted);
            if here.is_positive() {
                taken.push(resource.with_amount(here));
                resource.scalar = Some(resource.amount(name) - here);
                wanted -= here;
            }
        }
        self.0.retain(|resource| resource.name != name || resource.amount(name).is_positive());
        Some(taken)
    }

    /// Whether all these ports can be taken.
    pub fn has_ports(&self, ports: &BTreeSet<u16>) -> bool {
        ports.iter().all(|port| {
            self.0.iter().flat_map(|r| r.ranges(PORTS)).any(|range| range.contains((*port).into()))
        })
    }

    /// Takes these ports, each as a resource of its own; all or none.
    pub fn take_ports(&mut self, ports: &BTreeSet<u16>) -> Option<Vec<Resource>> {
        if !self.has_ports(ports) {
            return None;
        }
        let mut taken = Vec::new();
        for port in ports.iter().copied().map(u64::from) {
            let holds = |resource: &&mut Resource| {
                resource.ranges(PORTS).iter().any(|range| range.contains(port))
            };
            let resource = self.0.iter_mut().find(holds).expect("each was found above");
            taken.push(resource.with_ranges(Ranges { ranges: vec![Range::one(port)] }));
            let left = without(resource.ranges(PORTS), port);
            resource.ranges = Some(Ranges { ranges: left });
        }
        self.0.retain(|resource| resource.name != PORTS || !resource.ranges(PORTS).is_empty());
        Some(taken)
    }
}

fn without(ranges: &[Range], port: u64) -> Vec<Range> {
    let split = |range: &Range| {
        if !range.contains(port) {
            return [Some(*range), None];
        }
        let below = port.checked_sub(1).map(|end| Range { begin: range.begin, end });
        let above = Range { begin: port.saturating_add(1), end: range.end };
        [below, Some(above)]
    };
    ranges.iter().flat_map(split).flatten().filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn resources(json: serde_json::Value) -> Remaining {
        Remaining::new(serde_json::from_value(json).unwrap())
    }

    fn json(resources: &[Resource]) -> serde_json::Value {
        serde_json::to_value(resources).unwrap()
    }

    #[test]
    fn what_is_taken_stays_what_it_was_offered_as() {
        let reservations = json!([
            {"type": "DYNAMIC", "role": "spark", "principal": "ops", "labels": {"labels": [{"key": "a"}]}}
        ]);
        let reserved = |value: f64| {
            json!({"name": "cpus", "type": "SCALAR", "scalar": {"value": value},
                "reservations": reservations, "allocation_info": {"role": "spark"},
                "provider_id": {"value": "p"}, "revocable": {}, "what_comes_later": 7})
        };
        let free = |value: f64| {
            json!({"name": "cpus", "type": "SCALAR", "scalar": {"value": value},
                "allocation_info": {"role": "spark"}})
        };
        let mut left = resources(json!([reserved(3.0), free(2.0)]));
        assert_eq!(left.amount(CPUS), Scalar::whole(5));
        assert_eq!(left.take(CPUS, Scalar::whole(6)), None);
        let taken = left.take(CPUS, Scalar::whole(4)).unwrap();
        assert_eq!(json(&taken), json!([reserved(3.0), free(1.0)]));
        assert_eq!(json(&left.0), json!([free(1.0)]), "what is used up is gone");
        assert_eq!(left.take(CPUS, Scalar::ZERO), Some(vec![]));
    }

    /// The sum of ten tenths is one.
    #[test]
    fn quantities_are_thousandths() {
        let tenth = json!({"name": "mem", "type": "SCALAR", "scalar": {"value": 0.1}});
        let mut left = resources(json!(vec![tenth; 10]));
        assert_eq!(left.amount(MEM), Scalar::whole(1));
        assert_eq!(left.take(MEM, Scalar::whole(1)).unwrap().len(), 10);
        assert_eq!(left, Remaining::default());
    }

    fn ports(role: &str, ranges: &[[u64; 2]]) -> serde_json::Value {
        let ranges: Vec<_> =
            ranges.iter().map(|[begin, end]| json!({"begin": begin, "end": end})).collect();
        json!({"name": "ports", "type": "RANGES", "ranges": {"range": ranges}, "role": role})
    }

    #[test]
    fn ports_come_from_where_they_are() {
        let offered = json!([ports("a", &[[3000, 5000]]), ports("b", &[[2000, 2500]])]);
        let mut left = resources(offered.clone());
        assert!(left.has_ports(&[].into()) && left.take_ports(&[].into()).unwrap().is_empty());
        assert!(!left.has_ports(&[2501].into()));
        assert_eq!(left.take_ports(&[2100, 2501].into()), None);
        assert_eq!(left, resources(offered), "all or none");
        let taken = left.take_ports(&[2100, 4000].into()).unwrap();
        assert_eq!(json(&taken), json!([ports("b", &[[2100, 2100]]), ports("a", &[[4000, 4000]])]));
        assert_eq!(
            json(&left.0),
            json!([
                ports("a", &[[3000, 3999], [4001, 5000]]),
                ports("b", &[[2000, 2099], [2101, 2500]])
            ])
        );
        assert!(!left.has_ports(&[4000].into()), "it is taken");
        let mut one = resources(json!([ports("a", &[[1, 1]])]));
        assert!(one.take_ports(&[1].into()).is_some());
        assert_eq!(one, Remaining::default());
    }

    proptest! {
        #[test]
        fn what_was_offered_is_what_was_taken_and_what_is_left(
            offered in proptest::collection::vec(0..5000_i32, 0..6),
            wanted in proptest::collection::vec(0..6000_i32, 0..6),
        ) {
            let scalar = |n: i32| Scalar::from_f64(f64::from(n) / 1000.0);
            let all: Vec<_> = offered.iter().enumerate().map(|(i, n)| {
                json!({"name": "cpus", "type": "SCALAR", "scalar": {"value": scalar(*n).to_f64()}, "role": i.to_string()})
            }).collect();
            let mut left = resources(json!(all));
            let mut taken = Scalar::ZERO;
            for amount in wanted.into_iter().map(scalar) {
                let before = left.clone();
                match left.take(CPUS, amount) {
                    Some(pieces) => {
                        prop_assert_eq!(pieces.iter().map(|r| r.amount(CPUS)).sum::<Scalar>(), amount);
                        taken += amount;
                    }
                    None => prop_assert_eq!(&left, &before),
                }
            }
            prop_assert_eq!(taken + left.amount(CPUS), offered.iter().copied().map(scalar).sum());
        }
    }
}
