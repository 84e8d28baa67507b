// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong outside the emulated computer, played by scripts that stand for the tools: no
//! packages, no network, no room, a kernel that will not do, a computer that hangs or dies.
//!
//! One test, because the tools are found by the process's PATH.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unspin_computers::{
    Bochs, Boot, Computer, Go, Kernel, Lab, LabError, Patience, Payload, Series,
};
use unspin_scenario::result::Record;
use unspin_scratch::Scratch;
use unspin_text::Lock;

const RELEASE: &str = "6.12.99-test";
const CONFIG: &str =
    "CONFIG_MODULES=y\nCONFIG_DYNAMIC_FTRACE=y\nCONFIG_DYNAMIC_FTRACE_WITH_ARGS=y\n\
    CONFIG_TRACEPOINTS=y\nCONFIG_KPROBES=y\nCONFIG_KVM=m\n";

struct Stage {
    dir: Scratch,
    lab: Lab,
}

impl Stage {
    fn new() -> Stage {
        let dir = Scratch::new();
        std::env::set_var("PATH", dir.dir("bin"));
        let lab = Lab::open(Some(dir.join("lab")), "/bin/true".into()).unwrap();
        Stage { dir, lab }
    }

    fn tool(&self, name: &str, script: &str) {
        let path = self.dir.join("bin").join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn lists_know_the_kernel(&self) {
        self.tool(
            "apt-cache",
            &format!(
                "echo '  Depends: linux-image-{RELEASE}'\necho '  Depends: linux-kbuild-6.12'"
            ),
        );
    }

    /// apt-get with these commands for `update` and for everything else but naming a mirror.
    fn apt_get(&self, update: &str, rest: &str) {
        let known = "bookworm http://mirror.test/debian/";
        self.tool(
            "apt-get",
            &format!(
                "case \"$*\" in *indextargets*) echo '{known}';; *update) {update};; *) {rest};; esac"
            ),
        );
    }

    fn build_of(&self, series: Series) -> Result<Kernel, LabError> {
        self.lab.build(series, &mut Go::new(&AtomicBool::new(false), &mut |_| {}))
    }

    #[track_caller]
    fn build_fails(&self, words: &[&str]) -> LabError {
        self.build_of_fails(Series::V6_12, words)
    }

    #[track_caller]
    fn build_of_fails(&self, series: Series, words: &[&str]) -> LabError {
        let error = self.build_of(series).unwrap_err();
        for word in words {
            assert!(error.to_string().contains(word), "{error}");
        }
        error
    }

    /// A kernel that was unpacked before, with headers that say they are of `headers_of`.
    fn unpacked(&self, name: &str, release: &str, config: &str, headers_of: &str) {
        let dir = self.lab.dir().join("kernels").join(release);
        let write = |path: String, text: &str| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let headers = format!("tree/usr/src/linux-headers-{release}");
        write("unpacked".into(), name);
        write("headers".into(), name);
        write("needs".into(), "gcc-14");
        write(format!("{headers}/.config"), config);
        write(
            format!("{headers}/include/generated/utsrelease.h"),
            &format!("#define UTS_RELEASE \"{headers_of}\"\n"),
        );
    }

    fn unpacked_with(&self, config: &str) {
        self.unpacked("6.12", RELEASE, config, RELEASE);
    }
}

#[test]
fn what_goes_wrong_is_said() {
    let stage = Stage::new();
    packages(&stage);
    kernels(&stage);
    debian_13(&stage);
    builds_of_bochs(&stage);
    computers(&stage);
    emulators(&stage);
}

fn packages(stage: &Stage) {
    stage.tool("apt-cache", "exit 100");
    stage.build_fails(&["no package of kernel series 6.12", "apt-get update"]);
    stage.lists_know_the_kernel();
    stage.build_fails(&["apt-get is not installed", "apt-get install apt"]);
    stage.tool("apt-get", "echo 'E: Could not resolve host: mirror.test' >&2; exit 100");
    let error = stage.build_fails(&["cannot download", "mirror.test", "check the network"]);
    assert!(matches!(error, LabError::Download { .. }));
    an_interrupt_is_no_failure(stage);
    stage.tool("apt-get", "cat /bin/sh > /dev/full");
    let error = stage.build_fails(&["no space left", "unspin-lab lab clean"]);
    assert!(matches!(error, LabError::NoSpace { .. }));
}

/// A Ctrl-C reaches the tools too, whether they end by themselves or must be ended.
fn an_interrupt_is_no_failure(stage: &Stage) {
    let interrupted = stage.dir.join("interrupted");
    let by_itself = format!(
        "while [ ! -e {} ]; do sleep 0.1; done; echo 'E: interrupted' >&2; exit 100",
        interrupted.display()
    );
    for script in [by_itself.as_str(), "exec sleep 100"] {
        stage.tool("apt-get", script);
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let outcome = std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                stop.store(true, Ordering::Relaxed);
                fs::write(&interrupted, "").unwrap();
            });
            stage.lab.build(Series::V6_12, &mut Go::new(&stop, &mut |_| {}))
        });
        assert!(matches!(outcome, Err(LabError::Interrupted)), "{script}: {outcome:?}");
        assert!(start.elapsed() < Duration::from_secs(90), "{script}");
    }
}

fn kernels(stage: &Stage) {
    for (without, option) in [
        ("CONFIG_DYNAMIC_FTRACE=y\n", "without CONFIG_DYNAMIC_FTRACE ("),
        ("CONFIG_DYNAMIC_FTRACE_WITH_ARGS=y\n", "without CONFIG_DYNAMIC_FTRACE_WITH_ARGS ("),
        ("CONFIG_KVM=m\n", "without CONFIG_KVM"),
    ] {
        // The module cannot use ftrace's redirection by whole registers.
        let regs = "CONFIG_DYNAMIC_FTRACE_WITH_REGS=y\n";
        stage.unpacked_with(&(CONFIG.replace(without, "") + regs));
        let error = stage.build_fails(&[RELEASE, "cannot run the module", option]);
        assert!(matches!(error, LabError::Unsuitable { .. }));
    }
    stage.unpacked("6.12", RELEASE, CONFIG, "6.12.98-test");
    let error =
        stage.build_fails(&["belong to kernel 6.12.98-test", RELEASE, "install linux-headers-"]);
    assert!(matches!(error, LabError::OtherHeaders { .. }));
    let headers = format!("kernels/{RELEASE}/tree/usr/src/linux-headers-{RELEASE}/include");
    fs::remove_dir_all(stage.lab.dir().join(headers)).unwrap();
    let error = stage.build_fails(&["no headers of kernel", RELEASE, "apt-get install"]);
    assert!(matches!(error, LabError::NoHeaders { .. }));
    stage.unpacked_with(CONFIG);
    // The error is shown, not what make says of it after that.
    let make =
        "echo 'hooks.c:1: error: what is this'; for i in 1 2 3 4 5 6 7 8 9; do echo Leaving; done";
    stage.tool("make", &format!("{make}; exit 2"));
    stage.build_fails(&["building the module failed", "error: what is this", "build.log"]);
    stage.tool("make", "exit 0");
    stage.tool("strip", "exit 0");
    assert_eq!(stage.build_of(Series::V6_12).unwrap().release, RELEASE);
    // Without package lists, unpacked packages are still used.
    stage.tool("apt-cache", "exit 100");
    assert_eq!(stage.build_of(Series::V6_12).unwrap().release, RELEASE);
}

/// Debian 13's packages, by lists of the lab's own, and the root its headers are built against in.
fn debian_13(stage: &Stage) {
    const SERIES: Series = Series::V7_3;
    const RELEASE: &str = "7.3.99+deb13-cloud-amd64";
    stage.tool("apt-get", "exit 0");
    let error = stage.build_of_fails(SERIES, &["no Debian mirror", "apt-get update"]);
    assert!(matches!(error, LabError::NoMirror));
    stage.apt_get("echo 'E: Could not resolve host: mirror.test'; exit 100", "exit 0");
    let error = stage.build_of_fails(SERIES, &["package lists of Debian 13", "mirror.test"]);
    assert!(matches!(error, LabError::Download { .. }));
    stage.apt_get("echo 'W: GPG error: NO_PUBKEY 6ED0E7B82643E131'; exit 100", "exit 0");
    let error = stage.build_of_fails(SERIES, &["NO_PUBKEY", "debian-archive-keyring"]);
    assert!(matches!(error, LabError::Signature { .. }));
    stage.apt_get("exit 0", "exit 0");
    stage.tool("apt-cache", "echo '  Depends: linux-image-7.4.1+deb13-cloud-amd64'");
    let error = stage.build_of_fails(SERIES, &["no package of kernel series 7.3"]);
    assert!(matches!(error, LabError::NoKernelPackage { .. }));

    let sources = stage.lab.dir().join("debian13/apt/debian.sources");
    let sources = fs::read_to_string(sources).unwrap();
    for words in ["http://mirror.test/debian/", "trixie-backports", "Signed-By: /usr/share/"] {
        assert!(sources.contains(words), "{sources}");
    }
    // Unpacked packages are used without the series' package, but not without a compiler.
    stage.unpacked("7.3", RELEASE, CONFIG, RELEASE);
    stage.build_of_fails(SERIES, &["cannot download the compiler of Debian 13"]);
    stage.tool("apt-cache", &format!("echo '  Depends: linux-image-{RELEASE}'"));
    stage.apt_get("exit 0", "echo 'E: Unable to locate package gcc-14' >&2; exit 100");
    stage.build_of_fails(SERIES, &["cannot download", "Unable to locate package gcc-14"]);
    assert!(!stage.lab.dir().join("debian13/complete").exists());
    in_the_root(stage);
}

/// Building in the root, once its packages are there.
fn in_the_root(stage: &Stage) {
    let programs = stage.lab.dir().join("debian13/root/usr/bin");
    stage.tool(
        "apt-get",
        &format!(
            "case \"$*\" in *indextargets*) echo 'bookworm http://mirror.test/debian/';; \
             *install*) mkdir -p {};; esac",
            programs.display()
        ),
    );
    stage.tool("unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1");
    let error = stage.build_of_fails(Series::V7_3, &["cannot enter", "not permitted", "as root"]);
    assert!(matches!(error, LabError::CannotEnter { .. }));
    let broken = "echo 'hooks.c:2: error: what is that'; exit 2";
    stage.tool("unshare", &format!("case \"$*\" in *true) exit 0;; *) {broken};; esac"));
    stage.build_of_fails(Series::V7_3, &["building the module failed", "error: what is that"]);
    stage.tool("unshare", "exit 0");
    assert_eq!(stage.build_of(Series::V7_3).unwrap().name, "7.3");
    // Without lists the kernel and its compiler still serve.
    fs::remove_file(stage.lab.dir().join("debian13/apt/updated")).unwrap();
    stage.tool("apt-get", "exit 100");
    stage.tool("apt-cache", "exit 100");
    assert_eq!(stage.build_of(Series::V7_3).unwrap().release, "7.3.99+deb13-cloud-amd64");
}

/// For what must not end by real time.
const LONG: Duration = Duration::from_secs(600);
/// For what must: the second where this computer was too busy for the script's first words.
const SHORT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];

/// Boots with a script as the emulator. Returns how that ended, and the output.
fn boot(stage: &Stage, script: &str, stop: &AtomicBool) -> (Result<(), LabError>, Vec<Record>) {
    boot_for(stage, script, stop, LONG)
}

/// Boots under a script that says "hello" and then hangs; returns the error.
fn boot_hangs(stage: &Stage, script: &str) -> LabError {
    let mut last = None;
    for wall in SHORT {
        let (outcome, heard) = boot_for(stage, script, &AtomicBool::new(false), wall);
        last = Some(outcome.expect_err("it says no end"));
        if !heard.is_empty() {
            break;
        }
    }
    last.expect("it was booted")
}

/// The same, ended as hung after a second of its CPU time or `wall` of silence.
fn boot_for(
    stage: &Stage,
    script: &str,
    stop: &AtomicBool,
    wall: Duration,
) -> (Result<(), LabError>, Vec<Record>) {
    stage.tool("qemu-system-x86_64", script);
    boot_on(stage, &Computer::qemu(1), stop, wall)
}

/// The same under the emulator that is in the stage's directory of tools.
fn boot_on(
    stage: &Stage,
    computer: &Computer,
    stop: &AtomicBool,
    wall: Duration,
) -> (Result<(), LabError>, Vec<Record>) {
    let kernel = Kernel {
        series: Series::V6_12,
        name: "6.12".into(),
        release: RELEASE.into(),
        vmlinuz: "/bin/true".into(),
        modules: Vec::new(),
        headers: PathBuf::new(),
        module: "/bin/true".into(),
        test_module: "/bin/true".into(),
    };
    let boot = Boot {
        kernel: &kernel,
        computer,
        payload: &Payload::default(),
        cmdline: "",
        patience: Patience { boot: Duration::from_secs(1), record: Duration::from_secs(1), wall },
        stop,
    };
    let mut heard = Vec::new();
    let outcome = stage.lab.boot(&boot, "fault", &mut |record| heard.push(record));
    (outcome, heard)
}

/// What Bochs exports, with bodies that say in records that they were called.
const LIKE_BOCHS: &str = r#"
#include <stdio.h>
#include <string.h>
void mask(void *cpu) __asm__("_ZN8BX_CPU_C25handleInterruptMaskChangeEv");
void inject(void *cpu) __asm__("_ZN8BX_CPU_C19VMenterInjectEventsEv");
void launch(void *cpu) __asm__("_ZN8BX_CPU_C8VMLAUNCHEP15bxInstruction_c");
void mask(void *cpu) { fputs(cpu == &mask ? MASKED : "", stdout); }
void inject(void *cpu) { fputs(cpu == &mask ? INJECTED : "", stdout); }
void launch(void *cpu) { CALLS; }
int main(int argc, char **argv)
{
	if (!strcmp(argv[argc - 1], "--help"))
		return puts("Bochs x86 Emulator 2.7") < 0;
	launch(&mask);
	fputs(END, stdout);
	return fflush(stdout);
}
"#;

/// A program in Bochs's place whose VMLAUNCH makes these calls.
fn like_bochs(stage: &Stage, calls: &str, options: &[&str]) {
    let record = |json: &str| {
        let crc = crc32fast::hash(json.as_bytes());
        format!("\"\\036{} {crc:08x} {}\\n\"", json.len(), json.replace('"', "\\\""))
    };
    let source = stage.dir.join("bochs.c");
    fs::write(&source, LIKE_BOCHS).unwrap();
    let mut gcc = Command::new("/usr/bin/gcc");
    gcc.env("PATH", "/usr/bin:/bin").args(["-O0", "-w"]).args(options);
    gcc.arg(format!("-DCALLS={calls}"))
        .arg(format!("-DMASKED={}", record(r#"{"record":"log","text":"masked"}"#)))
        .arg(format!("-DINJECTED={}", record(r#"{"record":"log","text":"injected"}"#)))
        .arg(format!("-DEND={}", record(r#"{"record":"end","runs":1,"failed":0}"#)));
    let status = gcc.arg("-o").arg(stage.dir.join("bin/bochs")).arg(&source).status().unwrap();
    assert!(status.success(), "{gcc:?}");
}

/// Where the lab's own Bochs cannot be built one line says why, and Debian's it is.
fn builds_of_bochs(stage: &Stage) {
    let why = || {
        let lab = Lab::open(Some(stage.dir.join("lab")), "/bin/true".into()).unwrap();
        let mut said = Vec::new();
        let bochs = lab
            .bochs(&mut Go::new(&AtomicBool::new(false), &mut |text| said.push(text.to_string())));
        assert_eq!(bochs.unwrap(), Bochs::Debian);
        let last = said.pop().unwrap();
        assert!(last.starts_with("Debian's Bochs boots") && !last.contains('\n'), "{last}");
        assert!(!stage.dir.join("lab/emulators/part").exists());
        last
    };
    // Debian's may be missing too.
    let error = stage.lab.bochs(&mut Go::new(&AtomicBool::new(false), &mut |_| {})).unwrap_err();
    assert!(error.to_string().starts_with("bochs is not installed"), "{error}");
    stage.tool("bochs", "echo 'Bochs x86 Emulator 2.7'");
    assert!(why().contains("g++ is not installed"));
    stage.tool("g++", "echo 'g++ 99'");
    stage.tool("make", "exit 0");
    assert!(why().contains("patch is not installed"));
    for tool in ["patch", "tar", "strip"] {
        stage.tool(tool, "exit 0");
    }
    stage.apt_get("echo 'E: Could not resolve host: mirror.test'; exit 100", "exit 0");
    assert!(why().contains("cannot download the package lists of Debian 13"));
    stage.apt_get("exit 0", "echo 'E: Failed to fetch'; exit 100");
    assert!(why().contains("cannot download the source of bochs"));
    stage.apt_get("exit 0", "echo other > bochs_3.0+dfsg.orig.tar.xz");
    assert!(why().contains("the source of bochs in Debian 13's archive is not"));
    fs::remove_file(stage.dir.join("bin/g++")).unwrap();
}

/// Bochs is mended, or nothing is booted.
fn emulators(stage: &Stage) {
    let boot = || boot_on(stage, &Computer::bochs(1), &AtomicBool::new(false), LONG);
    for (calls, options, why) in [
        ("", ["-rdynamic"].as_slice(), "does not call VMenterInjectEvents"),
        ("inject(cpu);inject(cpu)", &["-rdynamic"], "more than once"),
        ("inject(cpu)", &[], "does not export"),
        ("inject(cpu)", &["-rdynamic", "-static"], "does not export"),
    ] {
        like_bochs(stage, calls, options);
        let (outcome, heard) = boot();
        let error = outcome.unwrap_err();
        assert!(matches!(error, LabError::Unmended { .. }), "{error}");
        for words in ["Bochs 2.7", why, "apt-get install"] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(heard, []);
    }
    stage.tool("xorriso", "exit 0");
    like_bochs(stage, "inject(cpu)", &["-rdynamic"]);
    if !Path::new("/usr/lib/ISOLINUX/isolinux.bin").exists() {
        return println!("SKIPPED: a boot under Bochs needs: apt-get install isolinux");
    }
    let (outcome, heard) = boot();
    outcome.unwrap();
    let log = |text: &str| Record::Log { text: text.into() };
    assert_eq!(heard[..2], [log("masked"), log("injected")]);
}

fn computers(stage: &Stage) {
    stage.tool("busybox", "exit 0");
    stage.tool("ldd", "exit 0");
    let frame = |json: &str| {
        let crc = crc32fast::hash(json.as_bytes());
        format!("printf '\\036%d %08x %s\\n' {} {crc} '{json}'", json.len())
    };
    let log = frame(r#"{"record":"log","text":"hello"}"#);
    let end = frame(r#"{"record":"end","runs":1,"failed":0}"#);
    let console = "echo 'Kernel panic - not syncing' > console.txt";
    let go = AtomicBool::new(false);

    let (outcome, heard) = boot(stage, &format!("{log}\n{end}\nexec sleep 100"), &go);
    outcome.unwrap();
    assert_eq!(heard.len(), 2);

    let pid = stage.dir.join("pid");
    let hang = format!("{console}\necho $$ > {}\n{log}\nexec sleep 100", pid.display());
    let error = boot_hangs(stage, &hang);
    assert!(matches!(error, LabError::Hang { .. }), "{error}");
    for words in ["the log line \"hello\"", "Kernel panic", "boots/fault"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let left = fs::read_to_string(&pid).unwrap();
    assert!(!Path::new("/proc").join(left.trim()).exists(), "the emulator is still there");

    // An emulator that gets no CPU time is not hung, however long it takes; one that spins is.
    let script = format!("sleep 2\n{log}\nsleep 2\n{end}\nexec sleep 100");
    let (outcome, _) = boot_for(stage, &script, &go, LONG);
    outcome.unwrap();
    let (outcome, _) = boot_for(stage, &format!("{log}\nwhile :; do :; done"), &go, LONG);
    assert!(matches!(outcome, Err(LabError::Hang { cpu_s: 1.., .. })), "{outcome:?}");
    // A console that grows shows life, but not for ever.
    let chatty =
        "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; echo x >> console.txt; done";
    let error = boot_hangs(stage, &format!("{log}\n{chatty}"));
    assert!(matches!(error, LabError::Hang { cpu_s: 0, after_s: 3.., .. }), "{error}");

    let (outcome, _) = boot(stage, &format!("{console}\nexit 1"), &go);
    let error = outcome.unwrap_err();
    assert!(matches!(error, LabError::Died { .. }), "{error}");
    assert!(error.to_string().contains("power-on") && error.to_string().contains("Kernel panic"));

    let damaged = log.replace("hello", "hallo");
    let (outcome, heard) = boot(stage, &format!("{damaged}\nexec sleep 100"), &go);
    assert!(matches!(outcome, Err(LabError::Channel { .. })), "{outcome:?}");
    assert_eq!(heard, []);

    let dir = stage.lab.boot_dir("fault");
    let held = Lock::take(&dir).unwrap();
    let (outcome, _) = boot(stage, "exec sleep 100", &go);
    for outcome in [outcome, stage.lab.clean(&mut Go::new(&go, &mut |_| {}))] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, LabError::Busy { .. }), "{error}");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    }
    assert!(dir.join("records.raw").exists(), "a boot under way keeps what it wrote");
    drop(held);
    let building = Lock::take(&stage.lab.dir().join("emulators")).unwrap();
    let error = stage.lab.clean(&mut Go::new(&go, &mut |_| {})).unwrap_err();
    assert!(matches!(error, LabError::Busy { .. }), "{error}");
    drop(building);
    stage.lab.clean(&mut Go::new(&go, &mut |_| {})).unwrap();
    for kept in ["kernels", "debian13", "emulators"] {
        assert!(!dir.exists() && !stage.lab.dir().join(kept).exists());
    }

    let start = Instant::now();
    let (outcome, _) = boot(stage, "exec sleep 100", &AtomicBool::new(true));
    assert!(matches!(outcome, Err(LabError::Interrupted)), "{outcome:?}");
    assert!(start.elapsed() < Duration::from_secs(90));

    fs::remove_file(stage.dir.join("bin/qemu-system-x86_64")).unwrap();
    assert_eq!(unspin_computers::missing_tools(&["qemu-system-x86_64"])[0].1, "qemu-system-x86");
}
