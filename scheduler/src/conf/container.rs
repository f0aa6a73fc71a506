//! What executors run in, and which secrets they are given (`spec/spark-mesos-coarse.md` A9).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::lists::{items, labels, parameters, port_mappings, volumes};
use super::reader::Reader;
use crate::mesos::task::{
    ContainerInfo, Containerizer, DockerInfo, DockerNetwork, Image, ImageName, Labels, MesosInfo,
    NetworkInfo, Parameter, Secret, SecretData, SecretName, Variable, Volume, VolumeMode,
    VolumeSource,
};

const CONTAINERIZER: &str = "spark.mesos.containerizer";
const IMAGE: &str = "spark.mesos.executor.docker.image";
const FORCE_PULL: &str = "spark.mesos.executor.docker.forcePullImage";
const VOLUMES: &str = "spark.mesos.executor.docker.volumes";
const PORT_MAPS: &str = "spark.mesos.executor.docker.portmaps";
const PARAMETERS: &str = "spark.mesos.executor.docker.parameters";
const NETWORK: &str = "spark.mesos.network.name";
const NETWORK_LABELS: &str = "spark.mesos.network.labels";
const SECRET_NAMES: &str = "spark.mesos.executor.secret.names";
const SECRET_VALUES: &str = "spark.mesos.executor.secret.values";
const SECRET_VARIABLES: &str = "spark.mesos.executor.secret.envkeys";
const SECRET_FILES: &str = "spark.mesos.executor.secret.filenames";

/// What all executors run in. There is a container info also where nothing is asked for.
pub(super) fn container(read: &mut Reader<'_>, secret_files: Vec<Volume>) -> ContainerInfo {
    let containerizer = read.parsed(CONTAINERIZER, Containerizer::Docker, |text| match text {
        "docker" => Ok(Containerizer::Docker),
        "mesos" => Ok(Containerizer::Mesos),
        _ => Err("use docker or mesos"),
    });
    let image = read.text(IMAGE).map(str::to_owned);
    let force_pull_image = read.bool(FORCE_PULL, false);
    let mounted = read.parsed(VOLUMES, Vec::new(), volumes);
    let port_mappings = read.parsed(PORT_MAPS, Vec::new(), port_mappings);
    let mut parameters = read.parsed(PARAMETERS, Vec::new(), parameters);
    let network_labels = read.parsed(NETWORK_LABELS, Labels::default(), labels);
    let network = read.text(NETWORK);
    let mut info = ContainerInfo {
        containerizer: Containerizer::Mesos,
        docker: None,
        mesos: None,
        volumes: Vec::new(),
        network_infos: network
            .map(|name| NetworkInfo { name: name.to_owned(), labels: network_labels })
            .into_iter()
            .collect(),
    };
    if let Some(image) = image {
        info.containerizer = containerizer;
        info.volumes = mounted;
        match containerizer {
            Containerizer::Docker => {
                parameters.extend(
                    network.map(|name| Parameter { key: "net".to_owned(), value: name.to_owned() }),
                );
                info.docker = Some(DockerInfo {
                    image,
                    force_pull_image,
                    network: network.map(|_| DockerNetwork::User),
                    port_mappings,
                    parameters,
                });
            }
            Containerizer::Mesos => {
                info.mesos = Some(MesosInfo {
                    image: Image {
                        image_type: "DOCKER",
                        docker: ImageName { name: image },
                        cached: !force_pull_image,
                    },
                });
            }
        }
    }
    info.volumes.extend(secret_files);
    info
}

/// Whether executors have a network of their own, where the agent's name is not theirs.
pub(super) fn has_network(read: &Reader<'_>) -> bool {
    read.text(NETWORK).is_some()
}

/// The secrets of executors: as environment variables, and as files.
pub(super) fn secrets(read: &mut Reader<'_>) -> (Vec<Variable>, Vec<Volume>) {
    let list = |read: &Reader<'_>, key| -> Vec<String> {
        read.text(key).map_or_else(Vec::new, |text| items(text).map(str::to_owned).collect())
    };
    let reference = |name| Secret::Reference { reference: SecretName { name } };
    let value = |text: String| Secret::Value { value: SecretData { data: STANDARD.encode(text) } };
    let (names, values) = (list(read, SECRET_NAMES), list(read, SECRET_VALUES));
    if !names.is_empty() && !values.is_empty() {
        read.wrong(SECRET_VALUES, format!("use either this or {SECRET_NAMES}"));
        return Default::default();
    }
    let secrets: Vec<Secret> =
        names.into_iter().map(reference).chain(values.into_iter().map(value)).collect();
    let mut places = |key| {
        let places = list(read, key);
        if !places.is_empty() && places.len() != secrets.len() {
            let why = format!(
                "there are {} of these and {} secrets; each secret needs one",
                places.len(),
                secrets.len()
            );
            read.wrong(key, why);
        }
        places.into_iter().zip(secrets.clone())
    };
    let variables =
        places(SECRET_VARIABLES).map(|(name, secret)| Variable::Secret { name, secret }).collect();
    let files = places(SECRET_FILES).map(|(container_path, secret)| Volume {
        container_path,
        host_path: None,
        mode: VolumeMode::Ro,
        source: Some(VolumeSource::Secret { secret }),
    });
    (variables, files.collect())
}
