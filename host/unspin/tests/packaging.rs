// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of packages. `make test-deb` installs them.

mod common;

use common::script::script;
use common::{command, said};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use unspin_scratch::Scratch;

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

/// A directory of an earlier build gets the missing sources.
#[test]
fn a_build_elsewhere_has_all_sources_each_time() {
    let build = Scratch::new();
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
}

/// The environment of a build by DKMS or by a user may have a variable of this name.
#[test]
fn only_the_command_line_of_make_asks_for_a_test_build() {
    let dir = Scratch::new();
    let show = "include $(src)/Kbuild\nall:\n\t@echo $(CFLAGS_hole.o)\n";
    dir.write("inner", show);
    // The variable gets to Kbuild through other calls of make.
    dir.write("outer", "all:\n\t$(MAKE) -f $(dir)/inner\n");
    let flags = |words: &[&str], environment: &str| {
        let mut make = Command::new("make");
        make.arg("-sf").arg(dir.join("outer")).args(["CC=true", "VERSION=6", "PATCHLEVEL=12"]);
        make.arg(format!("dir={}", dir.display()));
        make.arg(format!("src={}", root().join("core/kmod").display()));
        make.args(words).env("UNSPIN_TEST", environment).env_remove("MAKEFLAGS");
        let out = make.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(flags(&["UNSPIN_TEST=1"], ""), "-DUNSPIN_TEST\n");
    assert_eq!(flags(&[], "1"), "\n");
    assert_eq!(flags(&["-e"], "1"), "\n");
    assert_eq!(flags(&["UNSPIN_TEST="], "1"), "\n");
}

/// Checks that `make dkms-tree` copies all sources; a missing one would fail the build by DKMS.
fn check_dkms_tree(folder: &str, module: &str, includes_min: u32) {
    let dir = Scratch::new();
    let tree = dir.join("tree");
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
            // Beside the file, or in a directory of Kbuild's -I.
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
    // It is as restricted as the others, except for what it needs.
    for word in [
        "SystemCallFilter=@system-service @module",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "UMask=0077",
        "DevicePolicy=closed",
    ] {
        assert!(unit.contains(&format!("\n{word}")), "{word}");
    }
    let config = root().join("debian/unspin.toml");
    let checked = command(&["apply", "--check", "--config"]).arg(config).status();
    assert!(checked.unwrap().success());
}

/// A unit's command, which must be valid: only the added option is wrong.
fn start_of(unit: &str, option: &str) -> String {
    let unit = read(unit);
    let start = unit.lines().find_map(|l| l.strip_prefix("ExecStart=/usr/bin/unspin ")).unwrap();
    let args: Vec<&str> = start.split(' ').chain([option, "x"]).collect();
    let out = common::unspin(&args);
    let said = said(&out);
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
    // All files name the same port.
    for file in ["docs/export.md", "README.md", "host/unspin/src/cmd/export/mod.rs"] {
        assert!(read(file).contains("127.0.0.1:19455"), "{file}");
    }
    assert!(start.contains("127.0.0.1:19455"), "{start}");
}

/// What a target of the Makefile installs, in order.
fn installed_by(target: &str, more: &[&str]) -> Vec<String> {
    let dest = Scratch::new();
    let mut make = Command::new("make");
    make.args(["-s", target]).arg(format!("DESTDIR={}", dest.display()));
    make.arg(concat!("UNSPIN=", env!("CARGO_BIN_EXE_unspin"))).args(more).current_dir(root());
    let out = make.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut all = files(&dest);
    all.sort();
    let inside = |file: &PathBuf| format!("/{}", file.strip_prefix(&dest).unwrap().display());
    all.iter().map(inside).collect()
}

/// Paths of a list of the .rpm's spec.
fn listed_in<'a>(spec: &'a str, list: &str) -> Vec<&'a str> {
    let (_, listed) = spec.split_once(&format!("\n{list}\n")).unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    listed.lines().filter_map(|line| line.split_whitespace().last()).collect()
}

/// The installed files for each packaging tool, from its inputs, without building packages.
#[test]
fn what_make_install_installs_is_what_the_packages_list() {
    let all = installed_by("install", &[]);
    // Each file is in %files of the .rpm, and each file in %files is installed.
    let spec = read("contrib/rpm/unspin.spec");
    let listed = listed_in(&spec, "%files");
    for file in &all {
        let is_listed = |pattern: &&str| match pattern.strip_suffix("*.1.gz") {
            Some(start) => file.starts_with(start),
            None => file == pattern,
        };
        assert!(listed.iter().any(is_listed), "{file} is not in %files");
    }
    for file in
        listed.iter().filter(|file| !file.contains("/share/doc") && !file.contains("/licenses"))
    {
        let start = file.trim_end_matches("*.1.gz");
        assert!(
            all.iter().any(|installed| installed.starts_with(start)),
            "{file} is not installed"
        );
    }
    // Both kinds of packages have the same descriptions; only Debian has unspin-lab.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let control = read("debian/control");
    let both = |part: &&str| !part.starts_with("Package: unspin-lab\n");
    for part in control.split("\n\n").skip(1).filter(both) {
        let (_, description) = part.split_once("\nDescription: ").unwrap();
        let (_, long) = description.split_once('\n').unwrap();
        let long = long.split("\n\n").next().unwrap();
        for paragraph in long.split("\n .\n") {
            assert!(words(&spec).contains(&words(paragraph)), "{paragraph}");
        }
    }
    // Debian's tools install the units.
    let debian =
        installed_by("install", &["UNITS=", "ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions"]);
    assert!(debian.contains(&"/usr/share/zsh/vendor-completions/_unspin".into()), "{debian:?}");
    assert!(!debian.iter().any(|file| file.ends_with(".service")), "{debian:?}");
    assert_eq!(debian.len() + 4, all.len());
    // Pages and examples exist.
    for list in ["debian/unspin.docs", "debian/unspin.examples", "debian/unspin-guest-dkms.docs"] {
        for path in read(list).lines() {
            assert!(root().join(path).exists(), "{list}: {path}");
        }
    }
}

/// Debian's package takes all that is installed; the .rpm names it.
#[test]
fn the_packages_of_headers_have_the_same_files() {
    let (all, spec) = (installed_by("install-dev", &[]), read("contrib/rpm/unspin.spec"));
    let listed = listed_in(&spec, "%files -n unspin-locks-devel");
    for file in &all {
        let has = |path: &&str| file == path || file.starts_with(&format!("{path}/"));
        assert!(listed.iter().any(has), "{file} is not in %files");
    }
    let apart = |path: &&&str| !path.contains("/share/doc") && !path.contains("/licenses");
    for path in listed.iter().filter(apart) {
        assert!(all.iter().any(|file| file.starts_with(*path)), "{path} is not installed");
    }
    assert!(spec.contains("$(cat debian/libunspin-locks-dev.examples)"));
    // Both name what has the header of probes.
    assert!(read("debian/control").contains("\nSuggests: systemtap-sdt-dev\n"));
    assert!(spec.contains("\nSuggests: systemtap-sdt-devel\n"));
}

/// All directories and programs have mode 755, and other files 644.
fn assert_for_all_users(path: &Path) {
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let is_program = path.parent().unwrap().ends_with("bin");
    let wanted = if path.is_dir() || is_program { 0o755 } else { 0o644 };
    assert_eq!(mode, wanted, "{}: {mode:o}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            assert_for_all_users(&entry.unwrap().path());
        }
    }
}

/// Paths with characters that the shell, sed or make reads otherwise.
#[test]
fn all_users_may_read_what_is_installed_whatever_its_path() {
    let odd = r#"o'd d "$x" & |\1"#;
    let dir = Scratch::new();
    let (unspin, lab) = (dir.join("built").join(odd), dir.join("built").join(odd).join("lab"));
    fs::create_dir_all(&lab).unwrap();
    for command in [unspin.join("unspin"), lab.join("unspin")] {
        script(&command, r#"[ "$1" = man ] && echo "$0" >"$2/${UNSPIN_NAME}.1" || echo "$2""#);
    }
    let targets: [(&[&str], &str, &str); 5] = [
        (&["install"], "DESTDIR", "unspin"),
        (&["install-lab"], "DESTDIR", "unspin-lab"),
        (&["install-dev"], "DESTDIR", ""),
        (&["-C", "core/kmod", "dkms-tree"], "DEST", ""),
        (&["-C", "core/guest-module", "dkms-tree"], "DEST", ""),
    ];
    for (target, place, name) in targets {
        let installed = |to: &Path, prefix: &str| -> BTreeSet<String> {
            let words = [
                format!("{place}={}", to.display()),
                format!("PREFIX={prefix}"),
                format!("UNSPIN={}", unspin.join("unspin").display()),
                format!("UNSPIN_LAB={}", lab.join("unspin").display()),
            ];
            let mut make = Command::new("sh");
            make.args(["-c", r#"umask 077 && exec make -s "$@""#, "sh"]).args(target);
            make.args(words.map(|word| word.replace('$', "$$"))).env("UNSPIN_NAME", name);
            let out = make.current_dir(root()).output().unwrap();
            assert!(out.status.success(), "{target:?}: {}", String::from_utf8_lossy(&out.stderr));
            assert_for_all_users(to);
            let inside = |file: &PathBuf| format!("/{}", file.strip_prefix(to).unwrap().display());
            files(to).iter().map(|file| inside(file).replace(prefix, "/usr")).collect()
        };
        let prefix = format!("/opt/{odd}");
        let plain = installed(&dir.join("plain"), "/usr");
        assert!(!plain.is_empty(), "{target:?}");
        assert_eq!(installed(&dir.join(odd), &prefix), plain, "{target:?}");
    }
    let file = dir.join(odd).join("opt").join(odd).join("share/pkgconfig/unspin-locks.pc");
    let text = fs::read_to_string(file).unwrap();
    assert!(text.starts_with(&format!("prefix=/opt/{odd}\n")), "{text}");
}

/// apt's choice of headers on an empty system, with a repository that has these packages.
fn headers_chosen(available: &[&str], installed: &str) -> Option<Vec<String>> {
    let dir = Scratch::new();
    for folder in ["etc/apt.conf.d", "etc/preferences.d", "lists/partial", "cache/archives/partial"]
    {
        dir.dir(folder);
    }
    let control = read("debian/control");
    let ours = control.split("\n\n").find(|part| part.contains("Package: unspin-dkms\n")).unwrap();
    let recommends = ours.lines().find(|line| line.starts_with("Recommends:")).unwrap();
    let recommends = recommends.trim_end_matches(',');
    let package = |name: &str, more: &str| {
        format!(
            "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n{more}"
        )
    };
    let file =
        |name: &str| format!("Filename: {name}.deb\nSize: 1\nSHA256: {}\n\n", "0".repeat(64));
    let mut packages = package("unspin-dkms", &format!("{recommends}\n{}", file("unspin-dkms")));
    for name in available {
        packages += &package(name, &file(name));
    }
    dir.write("repo/Packages", packages);
    let repo = dir.join("repo");
    dir.line("etc/sources.list", &format!("deb [trusted=yes] file:{} ./", repo.display()));
    let status = match installed {
        "" => String::new(),
        name => package(name, "Status: install ok installed\n\n"),
    };
    dir.write("status", status);
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.env("APT_CONFIG", "/dev/null").env("LC_ALL", "C");
        for (key, value) in [
            ("Dir::Etc", "etc"),
            ("Dir::State", "."),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            apt.arg("-o").arg(format!("{key}={}", dir.join(value).display()));
        }
        apt.args(["-o", "APT::Sandbox::User=root", "-o", "APT::Install-Recommends=true"])
            .args(words);
        apt.output()
    };
    let Ok(update) = apt(&["update"]) else { return None };
    assert!(update.status.success(), "{}", String::from_utf8_lossy(&update.stderr));
    let out = apt(&["install", "--simulate", "unspin-dkms"]).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let new = said.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let new = new.filter(|name| *name != "unspin-dkms").map(String::from).collect();
    Some(new)
}

/// A host gets headers of its own kernel, and no others than it has.
#[test]
fn recommended_headers_are_the_distributions() {
    let proxmox = ["linux-headers-amd64", "proxmox-default-headers"];
    for (available, installed, wanted) in [
        (&["linux-headers-amd64"][..], "", &["linux-headers-amd64"][..]),
        (&["linux-headers-generic"], "", &["linux-headers-generic"]),
        (&proxmox, "", &["proxmox-default-headers"]),
        (&["linux-headers-amd64", "pve-headers"], "", &["pve-headers"]),
        (&proxmox, "linux-headers-amd64", &[]),
        (&[], "", &[]),
    ] {
        let Some(chosen) = headers_chosen(available, installed) else {
            println!("SKIPPED: which headers apt chooses: needs apt-get");
            return;
        };
        assert_eq!(chosen, wanted, "of {available:?} beside {installed:?}");
    }
}

/// The scripts that run before packages are removed, if rmmod never returns.
#[test]
fn removing_a_package_does_not_wait_for_the_kernel() {
    let dir = Scratch::new();
    for module in ["unspin/default", "unspin_guest"] {
        dir.dir(module);
    }
    script(&dir.join("rmmod"), "trap '' TERM\nsleep 20");
    for package in ["unspin-dkms", "unspin-guest-dkms"] {
        let text = read(&format!("debian/{package}.prerm"));
        let text =
            text.replace("/sys/module", dir.to_str().unwrap()).replace("timeout 30", "timeout 1");
        let begin = std::time::Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-c", &text, package, "remove"]);
        shell.env("PATH", format!("{}:/usr/bin:/bin", dir.display()));
        let out = shell.output().unwrap();
        let said = said(&out);
        assert!(
            out.status.success() && said.contains("stays loaded until the next boot"),
            "{said}"
        );
        assert!(begin.elapsed().as_secs() < 15, "{:?}", begin.elapsed());
    }
    assert_eq!(fs::read_to_string(dir.join("unspin/default/mode")).unwrap(), "off\n");
}

#[test]
fn the_container_runs_what_the_command_takes() {
    let image = read("contrib/container/Containerfile");
    let line = image.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let pod = read("contrib/kubernetes/unspin-export.yaml");
    let args = pod.lines().find_map(|line| line.trim().strip_prefix("args: ")).unwrap();
    assert_eq!(line, args);
    assert!(image.contains(concat!("unspin:", env!("CARGO_PKG_VERSION"), "\n")));
    assert!(pod.contains(concat!("image: unspin:", env!("CARGO_PKG_VERSION"), "\n")));
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let out = command(&words).args(["--vcpus-max", "x"]).output().unwrap();
    let said = said(&out);
    assert!(out.status.code() == Some(2) && said.contains("--vcpus-max"), "{said}");
    let port = words[2].rsplit(':').next().unwrap();
    assert!(
        image.contains(&format!("EXPOSE {port}"))
            && pod.contains(&format!("containerPort: {port}"))
    );
}
