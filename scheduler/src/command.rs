//! The command line and the environment of an executor (`spec/spark-mesos-coarse.md` A8).

use crate::conf::{Distribution, ExecutorConf};
use crate::mesos::task::{CommandInfo, Environment, Uri, Variable};

const BACKEND: &str = "org.apache.spark.executor.CoarseGrainedExecutorBackend";

/// What an executor is told of the driver that it works for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverInfo {
    /// `spark://CoarseGrainedScheduler@HOST:PORT`.
    pub url: String,
    /// The application's id, as the driver and the shuffle services know it.
    pub app_id: String,
}

/// What an executor is told of itself.
#[derive(Debug, Clone, Copy)]
pub struct Executor<'a> {
    /// Its id, which is its task's.
    pub id: &'a str,
    /// Its agent's name.
    pub hostname: &'a str,
    /// That were taken for it.
    pub cores: u32,
}

/// What the agent runs.
pub fn command(conf: &ExecutorConf, driver: &DriverInfo, executor: Executor<'_>) -> CommandInfo {
    let library_path = conf
        .library_path
        .as_ref()
        .map_or_else(String::new, |path| format!("LD_LIBRARY_PATH=\"{path}:$LD_LIBRARY_PATH\""));
    let program = match &conf.distribution {
        Distribution::Home(home) => format!("{library_path} \"{home}/./bin/spark-class\""),
        Distribution::Uri(uri) => {
            format!("cd {}*; {library_path} ./bin/spark-class", unpacked(uri))
        }
    };
    let cores = executor.cores.saturating_add(conf.extra_cores);
    let mut value = format!(
        "{program} {BACKEND} --driver-url {} --executor-id {} --cores {cores} --app-id {}",
        driver.url, executor.id, driver.app_id
    );
    // With a network of its own the executor finds out its address by itself.
    if !conf.own_network {
        value.push_str(" --hostname ");
        value.push_str(executor.hostname);
    }
    let distribution = match &conf.distribution {
        Distribution::Home(_) => None,
        Distribution::Uri(uri) => Some(uri),
    };
    let uris = distribution.into_iter().chain(&conf.uris);
    CommandInfo {
        value,
        uris: uris.map(|uri| Uri { value: uri.clone(), cache: conf.fetcher_cache }).collect(),
        environment: environment(conf, driver, executor),
    }
}

fn environment(conf: &ExecutorConf, driver: &DriverInfo, executor: Executor<'_>) -> Environment {
    let class_path = conf.class_path.clone().map(|path| ("SPARK_EXECUTOR_CLASSPATH", path));
    let options = conf
        .java_options
        .replace("{{APP_ID}}", &driver.app_id)
        .replace("{{EXECUTOR_ID}}", executor.id);
    let own = class_path.into_iter().chain([("SPARK_EXECUTOR_OPTS", options)]);
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let plain = own.chain(conf.environment.iter().cloned());
    let plain = plain.map(|(name, value)| Variable::Value { name, value });
    Environment { variables: plain.chain(conf.secrets.iter().cloned()).collect() }
}

/// How the directory begins that an archive is unpacked to: the last part of its path, up to the first point.
fn unpacked(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conf::testing::conf;

    fn made(entries: &[(&str, &str)]) -> serde_json::Value {
        let driver = DriverInfo {
            url: "spark://CoarseGrainedScheduler@10.0.0.1:4040".to_owned(),
            app_id: "app-1".to_owned(),
        };
        let executor = Executor { id: "7", hostname: "host7", cores: 4 };
        serde_json::to_value(command(&conf(entries).executor, &driver, executor)).unwrap()
    }

    const ARGUMENTS: &str = "org.apache.spark.executor.CoarseGrainedExecutorBackend \
        --driver-url spark://CoarseGrainedScheduler@10.0.0.1:4040 --executor-id 7 --cores 4 --app-id app-1";

    /// Before its own words there is a space where a library path would stand, as with Spark's.
    #[test]
    fn the_command_is_spark_s_to_the_letter() {
        let value = |entries: &[(&str, &str)]| made(entries)["value"].as_str().unwrap().to_owned();
        assert_eq!(
            value(&[]),
            format!(" \"/opt/spark/./bin/spark-class\" {ARGUMENTS} --hostname host7")
        );
        let uri = ("spark.executor.uri", "hdfs:///x/spark-2.4.0-bin.tgz");
        assert_eq!(
            value(&[uri]),
            format!("cd spark-2*;  ./bin/spark-class {ARGUMENTS} --hostname host7")
        );
        let network = ("spark.mesos.network.name", "net");
        assert_eq!(value(&[network]), format!(" \"/opt/spark/./bin/spark-class\" {ARGUMENTS}"));
        assert_eq!(value(&[uri, network]), format!("cd spark-2*;  ./bin/spark-class {ARGUMENTS}"));
        let library = ("spark.executor.extraLibraryPath", "/usr/lib/hadoop");
        assert_eq!(
            value(&[library]),
            format!(
                "LD_LIBRARY_PATH=\"/usr/lib/hadoop:$LD_LIBRARY_PATH\" \"/opt/spark/./bin/spark-class\" \
                 {ARGUMENTS} --hostname host7"
            )
        );
        let extra = value(&[("spark.mesos.extra.cores", "2")]);
        assert!(extra.contains(" --cores 6 "), "{extra}");
        let query = value(&[("spark.executor.uri", "http://h/d/spark.tgz?a=b.c/d")]);
        assert!(query.starts_with("cd spark*; "), "{query}");
    }

    #[test]
    fn the_distribution_is_fetched_before_the_rest() {
        let fetched = |entries: &[(&str, &str)]| made(entries)["uris"].clone();
        assert_eq!(fetched(&[]), json!([]));
        let entries = [
            ("spark.executor.uri", "/a.tgz"),
            ("spark.mesos.uris", "/b , ,/c"),
            ("spark.mesos.fetcherCache.enable", "true"),
        ];
        let uri = |value: &str, cache| json!({"value": value, "cache": cache});
        assert_eq!(
            fetched(&entries),
            json!([uri("/a.tgz", true), uri("/b", true), uri("/c", true)])
        );
        assert_eq!(fetched(&entries[..1]), json!([uri("/a.tgz", false)]));
    }

    #[test]
    fn the_environment_is_in_spark_s_order() {
        let variables =
            |entries: &[(&str, &str)]| made(entries)["environment"]["variables"].clone();
        let value =
            |name: &str, value: &str| json!({"type": "VALUE", "name": name, "value": value});
        let plain = ("shuffled.mesos.javaModuleOptions", "false");
        assert_eq!(variables(&[plain]), json!([value("SPARK_EXECUTOR_OPTS", "")]));
        let entries = [
            plain,
            ("spark.executor.extraClassPath", "/x.jar"),
            ("spark.executor.extraJavaOptions", "-Da={{APP_ID}} -Db={{EXECUTOR_ID}}"),
            ("spark.executorEnv.ZONE", "z"),
            ("spark.mesos.executor.secret.names", "/s"),
            ("spark.mesos.executor.secret.envkeys", "PASSWORD"),
        ];
        assert_eq!(
            variables(&entries),
            json!([
                value("SPARK_EXECUTOR_CLASSPATH", "/x.jar"),
                value("SPARK_EXECUTOR_OPTS", "-Da=app-1 -Db=7"),
                value("ZONE", "z"),
                {"type": "SECRET", "name": "PASSWORD",
                    "secret": {"type": "REFERENCE", "reference": {"name": "/s"}}}
            ])
        );
        let java_17 = variables(&[("spark.executor.extraJavaOptions", "-Dmine")]);
        let options = java_17[0]["value"].as_str().unwrap();
        assert!(options.starts_with(
            "-XX:+IgnoreUnrecognizedVMOptions --add-opens=java.base/java.lang=ALL-UNNAMED "
        ));
        assert!(
            options.ends_with(" -Djdk.reflect.useDirectMethodHandle=false -Dmine"),
            "{options}"
        );
    }
}
