// SPDX-License-Identifier: MIT OR Apache-2.0
//! What packages are made of. `make test-deb` installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn everything_is_of_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let after = |path: &str, start: &str| {
        let text = read(path);
        let line = text.lines().find_map(|l| l.strip_prefix(start));
        line.unwrap_or_else(|| panic!("{path} has no {start}")).trim_matches('"').to_string()
    };
    assert_eq!(after("core/kmod/Makefile", "UNSPIN_VERSION := "), version);
    assert_eq!(after("core/kmod/dkms.conf", "PACKAGE_VERSION="), version);
    assert_eq!(after("core/guest-module/Makefile", "UNSPIN_VERSION := "), version);
    assert_eq!(after("core/guest-module/dkms.conf", "PACKAGE_VERSION="), version);
    assert!(after("debian/changelog", "unspin (").starts_with(&format!("{version})")));
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] }).collect()
}

#[test]
fn the_trees_for_dkms_are_whole() {
    check_dkms_tree("kmod", "unspin", 20);
    check_dkms_tree("guest-module", "unspin-guest", 4);
}

/// A directory of an earlier build gets the sources that it lacks.
#[test]
fn a_build_elsewhere_has_all_sources_each_time() {
    let build = std::env::temp_dir().join(format!("unspin-tree-{}", std::process::id()));
    let make = || {
        let mut make = Command::new("make");
        make.args(["-s", "-C"]).arg(root().join("core/kmod")).arg("tree");
        assert!(make.arg(format!("BUILD={}", build.display())).status().unwrap().success());
    };
    make();
    let sources =
        [build.join("kmod/main.c"), build.join("policy/hvs.c"), build.join("uapi/unspin.h")];
    for source in &sources {
        fs::remove_file(source).unwrap();
    }
    make();
    assert!(sources.iter().all(|source| source.is_file()));
    fs::remove_dir_all(build).unwrap();
}

/// A source that `make dkms-tree` forgets would be missed where DKMS builds the module.
fn check_dkms_tree(folder: &str, module: &str, includes_min: u32) {
    let tree = std::env::temp_dir().join(format!("{module}-dkms-tree-{}", std::process::id()));
    let make = Command::new("make")
        .args(["-s", "-C"])
        .arg(root().join("core").join(folder))
        .args(["dkms-tree", &format!("DEST={}", tree.display())])
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
    let all = files(&tree);
    let kbuild = tree.join(folder).join("Kbuild");
    assert!(all.contains(&tree.join("dkms.conf")) && all.contains(&kbuild));
    let mut included = 0;
    for file in all.iter().filter(|f| f.extension().is_some_and(|x| x == "c" || x == "h")) {
        let text = fs::read_to_string(file).unwrap();
        let names = text.lines().filter_map(|l| {
            l.trim_start()
                .strip_prefix('#')?
                .trim_start()
                .strip_prefix("include \"")?
                .split('"')
                .next()
        });
        for name in names {
            // Beside the file, or where a -I of Kbuild points.
            let beside = file.parent().unwrap().join(name).is_file();
            let found = beside || all.iter().any(|f| f.ends_with(name));
            assert!(found, "{} includes {name}, which the tree has not", file.display());
            included += 1;
        }
    }
    assert!(included > includes_min, "{included} includes are too few");
    let kbuild = fs::read_to_string(kbuild).unwrap();
    let objects = kbuild.split_whitespace().filter_map(|word| word.strip_suffix(".o"));
    for object in objects.filter(|object| *object != module && !object.starts_with("CFLAGS")) {
        assert!(tree.join(folder).join(object).with_extension("c").is_file(), "{object}.c");
    }
    fs::remove_dir_all(tree).unwrap();
}

#[test]
fn the_service_is_what_the_command_takes() {
    let unit = read("debian/unspin.service");
    assert!(unit.contains("ConditionKernelCommandLine=!unspin=off\n"));
    let commands: Vec<&str> = unit
        .lines()
        .filter_map(|l| l.strip_prefix("Exec")?.split_once('=')?.1.split("/usr/bin/unspin ").nth(1))
        .collect();
    assert_eq!(commands, ["apply --stay", "apply --check", "apply --stop"]);
    let config = root().join("debian/unspin.toml");
    let checked = Command::new(env!("CARGO_BIN_EXE_unspin"))
        .args(["apply", "--check", "--config"])
        .arg(config)
        .status();
    assert!(checked.unwrap().success());
}

/// What a unit runs, which the command takes: only the option that is added is wrong.
fn start_of(unit: &str, option: &str) -> String {
    let unit = read(unit);
    let start = unit.lines().find_map(|l| l.strip_prefix("ExecStart=/usr/bin/unspin ")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    let out = command.args(start.split(' ')).args([option, "x"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && said.contains(option), "{said}");
    start.to_string()
}

#[test]
fn the_unit_that_shapes_is_what_the_command_takes() {
    start_of("debian/unspin.unspin-shape.service", "--period-ms");
}

#[test]
fn the_exporters_unit_is_what_the_command_takes() {
    let start = start_of("debian/unspin.unspin-export.service", "--vcpus-max");
    // The port is one and the same wherever it is named.
    for file in ["docs/export.md", "README.md", "host/unspin/src/cmd/export/mod.rs"] {
        assert!(read(file).contains("127.0.0.1:19455"), "{file}");
    }
    assert!(start.contains("127.0.0.1:19455"), "{start}");
}
