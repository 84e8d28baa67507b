// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and pods of the containers in which VMMs run, from the records of container engines. A
//! container without a readable record has no name.

use crate::names::{Kind, Names};
use serde_json::Value;
use std::path::Path;
use unspin_text::read_file;

/// Longer records are not read, in bytes.
const NOTE_MAX: u64 = 8 << 20;

/// Directories in which containerd records containers; a subdirectory per namespace.
const CONTAINERD: [&str; 4] = [
    "run/containerd/io.containerd.runtime.v2.task",
    // K3s and RKE2, k0s, MicroK8s.
    "run/k3s/containerd/io.containerd.runtime.v2.task",
    "run/k0s/containerd/io.containerd.runtime.v2.task",
    "var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task",
];

/// The storage of CRI-O, for running containers.
const CRIO: &str = "run/containers/storage/overlay-containers";
/// The storage of root's podman and docker, and that of a user in the home directory.
const OF_ROOT: &str = "var/lib";
const OF_USER: &str = ".local/share";
const PODMAN: &str = "containers/storage/overlay-containers/containers.json";
const DOCKER: &str = "docker/containers";

/// The labels of namespace, pod and container, for each engine.
const KEYS: [[&str; 3]; 2] = [
    [
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.container-name",
    ],
    ["io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"],
];

/// Adds the names of the container, and of its pod. `root`: the host's root directory; `home`: the home directory
/// of the user who runs the container, unless that is root.
pub fn add_names(root: &Path, home: Option<&str>, id: &str, names: &mut Names) {
    if id.contains('/') || id.starts_with('.') {
        return;
    }
    for dir in CONTAINERD {
        for namespace in ["k8s.io", "default", "moby"] {
            let path = root.join(dir).join(namespace).join(id).join("config.json");
            add_labels(&note(&path)["annotations"], names);
        }
    }
    add_labels(&note(&root.join(CRIO).join(id).join("userdata/config.json"))["annotations"], names);
    let of_user = home.map(|home| root.join(home.trim_start_matches('/')).join(OF_USER));
    for storage in of_user.into_iter().chain([root.join(OF_ROOT)]) {
        add_stored(&storage, id, names);
    }
}

/// Adds the names of a container of docker or podman.
fn add_stored(storage: &Path, id: &str, names: &mut Names) {
    let docker = note(&storage.join(DOCKER).join(id).join("config.v2.json"));
    add_labels(&docker["Config"]["Labels"], names);
    let name = docker["Name"].as_str().map(|name| name.trim_start_matches('/'));
    names.add(Kind::Container, name.unwrap_or_default());
    if names.get(Kind::Container).is_none() {
        let all = note(&storage.join(PODMAN));
        let mut all = all.as_array().into_iter().flatten();
        let of = all.find(|container| container["id"] == id);
        let name = of.and_then(|container| container["names"][0].as_str());
        names.add(Kind::Container, name.unwrap_or_default());
    }
}

fn add_labels(labels: &Value, names: &mut Names) {
    for [namespace, pod, container] in KEYS {
        let of = |key: &str| labels[key].as_str().filter(|text| !text.is_empty());
        if let (Some(namespace), Some(pod)) = (of(namespace), of(pod)) {
            names.add(Kind::Pod, format!("{namespace}/{pod}"));
            // A pod's sandbox has no container name, or this one.
            if let Some(container) = of(container).filter(|name| *name != "POD") {
                names.add(Kind::Container, format!("{namespace}/{pod}/{container}"));
            }
        }
    }
    names.add(Kind::Container, labels["nerdctl/name"].as_str().unwrap_or_default());
}

fn note(path: &Path) -> Value {
    let text = read_file(path, NOTE_MAX).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
