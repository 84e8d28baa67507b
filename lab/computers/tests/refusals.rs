// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that the module must not be built for: their configuration stops the compiler with a line
//! that names it.

use std::path::Path;
use std::process::Command;

/// A kernel's configuration, and the compiler's error for it.
const REFUSED: [(&[&str], &str); 5] = [
    (&["CONFIG_KVM_MODULE=1", "CONFIG_PREEMPT_RT=1"], "unspin does not support PREEMPT_RT"),
    (&["CONFIG_KVM_MODULE=1", "CONFIG_CFI_CLANG=1"], "unspin does not support CFI kernels"),
    (&["CONFIG_KVM_MODULE=1", "CONFIG_CFI=1"], "unspin does not support CFI kernels"),
    (&["CONFIG_KVM_MODULE=1", "CONFIG_LTO_CLANG=1"], "built with link-time optimization (LTO)"),
    (&["CONFIG_KVM=1"], "unspin needs KVM as a module"),
];

#[test]
fn kernels_that_will_not_do_are_named_by_the_compiler() {
    let dir = unspin_scratch::Scratch::new();
    // As in the kernel's own: defined for an option that is a module.
    let kconfig = "#ifdef CONFIG_KVM_MODULE\n#define IS_MODULE(option) 1\n#else\n\
        #define IS_MODULE(option) 0\n#endif\n";
    dir.write("linux/kconfig.h", kconfig);
    let version = "#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))\n\
        #define LINUX_VERSION_CODE KERNEL_VERSION(6, 12, 0)\n";
    dir.write("linux/version.h", version);
    for (config, words) in REFUSED {
        let said = preprocessed(&dir, config);
        assert!(said.contains(words), "{config:?}: {said}");
    }
    let said = preprocessed(&dir, &["CONFIG_KVM_MODULE=1"]);
    assert!(!said.contains("#error"), "{said}");
}

/// The preprocessor's output for the header that tells kernels apart.
fn preprocessed(dir: &Path, config: &[&str]) -> String {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/kmod/compat/compat.h");
    let gcc = Command::new("gcc")
        .args(["-E", "-x", "c", "-I"])
        .arg(dir)
        .args(config.iter().map(|option| format!("-D{option}")))
        .arg(&header)
        .output()
        .expect("gcc");
    String::from_utf8_lossy(&gcc.stderr).into_owned()
}
