//! What a framework says of itself (`spec/spark-mesos-coarse.md` A2).

use crate::conf::CoarseConf;
use crate::mesos::call::{Capability, FrameworkInfo};
use crate::mesos::ids::FrameworkId;

/// For SUBSCRIBE. An `id` that was given before goes before one that is configured.
pub fn framework_info(conf: &CoarseConf, id: Option<FrameworkId>) -> FrameworkInfo {
    let framework = &conf.framework;
    let mut capabilities = vec![
        Capability::PartitionAware,
        Capability::MultiRole,
        Capability::ReservationRefinement,
        Capability::TaskKillingState,
    ];
    // Whoever has it is offered agents with GPUs, which others should not use up.
    if conf.gpus_max > 0 {
        capabilities.push(Capability::GpuResources);
    }
    FrameworkInfo {
        user: framework.user.clone(),
        name: framework.name.clone(),
        id: id.or_else(|| framework.id.clone().map(FrameworkId::from)),
        failover_timeout: framework.failover_timeout.as_secs_f64(),
        checkpoint: framework.checkpoint,
        roles: vec![framework.role.clone()],
        hostname: framework.hostname.clone(),
        principal: framework.credential.as_ref().map(|credential| credential.principal.clone()),
        webui_url: framework.webui_url.clone(),
        capabilities,
        labels: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conf::testing::conf;

    fn info(entries: &[(&str, &str)], id: Option<&str>) -> serde_json::Value {
        serde_json::to_value(framework_info(&conf(entries), id.map(FrameworkId::from))).unwrap()
    }

    /// Case 16 of part C, and A2.
    #[test]
    fn a_framework_says_what_is_configured() {
        let entries = [
            ("spark.app.name", "job"),
            ("spark.mesos.driver.webui.url", "http://webui"),
            ("spark.mesos.driver.failoverTimeout", "3600"),
            ("spark.mesos.driver.frameworkId", "configured"),
            ("spark.mesos.role", "eng/fe"),
            ("spark.mesos.principal", "p"),
            ("spark.mesos.secret", "very secret"),
            ("spark.driver.host", "10.0.0.1"),
        ];
        let said = info(&entries, None);
        assert_eq!(said["name"], "job");
        assert_eq!(said["webui_url"], "http://webui");
        assert_eq!(said["failover_timeout"], json!(3600.0));
        assert_eq!(said["id"], json!({"value": "configured"}));
        assert_eq!(said["roles"], json!(["eng/fe"]));
        assert_eq!(said["principal"], "p");
        assert_eq!(said["hostname"], "10.0.0.1");
        assert!(said.get("role").is_none(), "MULTI_ROLE forbids it");
        assert!(!said.to_string().contains("very secret"));
        assert_eq!(info(&entries, Some("given"))["id"], json!({"value": "given"}));
        assert!(info(&[], None).get("id").is_none());
    }

    #[test]
    fn agents_with_gpus_are_asked_for_by_those_who_use_them() {
        let gpus = |entries: &[(&str, &str)]| {
            let said = info(entries, None);
            let all = said["capabilities"].as_array().unwrap();
            all.contains(&json!({"type": "GPU_RESOURCES"}))
        };
        assert!(!gpus(&[]));
        assert!(gpus(&[("spark.mesos.gpus.max", "1")]));
    }
}
