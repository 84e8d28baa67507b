// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and pods of the containers in which VMMs run, from the records of container engines, and names of OpenStack's
//! instances from libvirt's. Without a readable record there is no name.

use crate::name::Name;
use crate::names::{Kind, Names};
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use unspin_text::read_file;

/// Longer records are not read, in bytes. In a home any user may write them.
const NOTE_MAX: u64 = 8 << 20;
const NOTE_MAX_OF_USER: u64 = 256 << 10;

/// Directories in which containerd records containers; a subdirectory per namespace.
const CONTAINERD: [&str; 4] = [
    "run/containerd/io.containerd.runtime.v2.task",
    // K3s and RKE2, k0s, MicroK8s.
    "run/k3s/containerd/io.containerd.runtime.v2.task",
    "run/k0s/containerd/io.containerd.runtime.v2.task",
    "var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task",
];

/// What libvirt notes about running domains.
const LIBVIRT: &str = "run/libvirt/qemu";

/// The storage of CRI-O, for running containers.
const CRIO: &str = "run/containers/storage/overlay-containers";
/// The storage of root's podman and docker, and that of a user in the home directory.
const OF_ROOT: &str = "var/lib";
const OF_USER: &str = ".local/share";
const PODMAN: [&str; 2] = [
    "containers/storage/overlay-containers/containers.json",
    // Those that podman removes when they end.
    "containers/storage/overlay-containers/volatile-containers.json",
];
const DOCKER: &str = "docker/containers";
/// The containers of docker's snap.
const DOCKER_SNAP: &str = "var/snap/docker/common/var-lib-docker/containers";

/// A record of containerd, CRI-O or docker.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Record {
    annotations: Option<Labels>,
    #[serde(rename = "Config")]
    config: Option<Config>,
    #[serde(rename = "Name")]
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    #[serde(rename = "Labels")]
    labels: Option<Labels>,
}

/// The labels of namespace, pod and container, for each engine.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    cri_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    cri_pod: Option<String>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    cri_container: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-uid")]
    cri_uid: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    namespace: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    container: Option<String>,
    #[serde(rename = "io.kubernetes.pod.uid")]
    uid: Option<String>,
    #[serde(rename = "nerdctl/name")]
    nerdctl: Option<String>,
}

/// A container in podman's list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    id: String,
    names: Option<Vec<String>>,
}

/// The records of a host's containers, each read once. `root`: the host's root directory.
pub struct Records {
    root: PathBuf,
    of_one: HashMap<PathBuf, Record>,
    /// The names in podman's lists by the containers' ids.
    lists: HashMap<PathBuf, HashMap<String, String>>,
}

impl Records {
    pub fn of(root: PathBuf) -> Records {
        Records { root, of_one: HashMap::new(), lists: HashMap::new() }
    }

    /// Adds the names of the container, and of its pod. `home`: the home directory of the user who runs the
    /// container, unless that is root.
    pub fn add_names(&mut self, home: Option<&str>, id: &str, names: &mut Names) {
        if id.contains('/') || id.starts_with('.') {
            return;
        }
        for path in self.annotated(id) {
            add_labels(self.record(path, NOTE_MAX).annotations.as_ref(), names);
        }
        let root = self.root.clone();
        let of_user = home.map(|home| root.join(home.trim_start_matches('/')).join(OF_USER));
        let of_user = of_user.map(|storage| (storage, NOTE_MAX_OF_USER));
        for (storage, most) in of_user.into_iter().chain([(root.join(OF_ROOT), NOTE_MAX)]) {
            self.add_stored(&storage, most, id, names);
        }
        self.add_docker(&root.join(DOCKER_SNAP), NOTE_MAX, id, names);
    }

    /// Whether a record says that the container is of the pod with this UID.
    pub fn is_of_pod(&mut self, id: &str, uid: &Name) -> bool {
        self.annotated(id).into_iter().any(|path| {
            let labels = self.record(path, NOTE_MAX).annotations.as_ref();
            let mut uids = labels.into_iter().flat_map(|of| [&of.cri_uid, &of.uid]).flatten();
            uids.any(|of| of.as_bytes() == uid.as_bytes())
        })
    }

    /// Where containerd and CRI-O would have the container's record.
    fn annotated(&self, id: &str) -> Vec<PathBuf> {
        let mut paths = vec![self.root.join(CRIO).join(id).join("userdata/config.json")];
        for dir in CONTAINERD {
            let of = |namespace| self.root.join(dir).join(namespace).join(id).join("config.json");
            paths.extend(["k8s.io", "default", "moby"].map(of));
        }
        paths
    }

    /// Adds the name that OpenStack's user gave an instance. libvirt keeps it with the domain.
    pub fn add_nova(&mut self, names: &mut Names) {
        let name = names.get(Kind::Name).map(Name::to_text).unwrap_or_default();
        let is_libvirts = names.get(Kind::Libvirt).is_some() || name.starts_with("instance-");
        if !is_libvirts || name.contains('/') {
            return;
        }
        let path = self.root.join(LIBVIRT).join(format!("{name}.xml"));
        let xml = read_file(&path, NOTE_MAX).unwrap_or_default();
        let xml = String::from_utf8_lossy(&xml);
        let (_, rest) = xml.split_once("<nova:name>").unwrap_or_default();
        let (name, _) = rest.split_once("</nova:name>").unwrap_or_default();
        let escapes =
            [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
        let name = escapes.iter().fold(name.to_string(), |name, (from, to)| name.replace(from, to));
        names.add(Kind::Nova, name);
    }

    /// Adds the names of a container of docker or podman.
    fn add_stored(&mut self, storage: &Path, most: u64, id: &str, names: &mut Names) {
        self.add_docker(&storage.join(DOCKER), most, id, names);
        for list in PODMAN {
            if names.get(Kind::Container).is_none() {
                let name = self.list(storage.join(list), most).get(id).cloned();
                names.add(Kind::Container, name.unwrap_or_default());
            }
        }
    }

    fn add_docker(&mut self, containers: &Path, most: u64, id: &str, names: &mut Names) {
        let docker = self.record(containers.join(id).join("config.v2.json"), most);
        add_labels(docker.config.as_ref().and_then(|config| config.labels.as_ref()), names);
        let name = docker.name.as_deref().map(|name| name.trim_start_matches('/'));
        names.add(Kind::Container, name.unwrap_or_default());
    }

    fn record(&mut self, path: PathBuf, most: u64) -> &Record {
        self.of_one.entry(path).or_insert_with_key(|path| note(path, most))
    }

    fn list(&mut self, path: PathBuf, most: u64) -> &HashMap<String, String> {
        self.lists.entry(path).or_insert_with_key(|path| {
            let all: Vec<Stored> = note(path, most);
            let named = |of: Stored| Some((of.id, of.names?.into_iter().next()?));
            all.into_iter().filter_map(named).collect()
        })
    }
}

fn add_labels(labels: Option<&Labels>, names: &mut Names) {
    let Some(of) = labels else { return };
    for [namespace, pod, container] in [
        [&of.cri_namespace, &of.cri_pod, &of.cri_container],
        [&of.namespace, &of.pod, &of.container],
    ] {
        let [namespace, pod, container] =
            [namespace, pod, container].map(|text| text.as_deref().filter(|text| !text.is_empty()));
        if let (Some(namespace), Some(pod)) = (namespace, pod) {
            names.add(Kind::Pod, format!("{namespace}/{pod}"));
            // A pod's sandbox has no container name, or this one.
            if let Some(container) = container.filter(|name| *name != "POD") {
                names.add(Kind::Container, format!("{namespace}/{pod}/{container}"));
            }
        }
    }
    names.add(Kind::Container, of.nerdctl.as_deref().unwrap_or_default());
}

fn note<T: DeserializeOwned + Default>(path: &Path, most: u64) -> T {
    let text = read_file(path, most).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
