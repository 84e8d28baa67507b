// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small workspaces on disk.

use std::path::PathBuf;

use unspin_house::{check, Findings, Workspace};

pub struct Small {
    root: PathBuf,
    house: String,
    package: String,
}

impl Small {
    /// A workspace of one crate, `crates/one`, and of nothing in it yet. Names are unique per test.
    pub fn new(name: &str) -> Small {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&root);
        Small { root, house: String::new(), package: String::new() }
    }

    pub fn file(self, path: &str, text: &str) -> Small {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().expect("it lies in the root"))
            .expect("it can be made");
        std::fs::write(path, text).expect("it can be written");
        self
    }

    /// A file of its crate.
    pub fn rust(self, path: &str, text: &str) -> Small {
        self.file(&format!("crates/one/src/{path}"), text)
    }

    /// Lines of `[workspace.metadata.house]`.
    pub fn house(mut self, lines: &str) -> Small {
        self.house.push_str(lines);
        self
    }

    /// Lines of its crate's `[package.metadata.rooms]`.
    pub fn rooms(mut self, lines: &str) -> Small {
        self.package = format!("[package.metadata.rooms]\n{lines}\n");
        self
    }

    pub fn workspace(self) -> Workspace {
        let has_lib = self.root.join("crates/one/src/lib.rs").exists();
        let small = if has_lib { self } else { self.rust("lib.rs", "") };
        let house = format!(
            "[workspace]\nresolver = \"2\"\nmembers = [\"crates/*\"]\n[workspace.metadata.house]\n{}\n",
            small.house
        );
        let package = format!(
            "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2021\"\ndescription = \"One\"\n{}",
            small.package
        );
        let small = small.file("Cargo.toml", &house).file("crates/one/Cargo.toml", &package);
        Workspace::read(&small.root).expect("it is a workspace")
    }

    pub fn findings(self) -> Findings {
        check(&self.workspace()).expect("it can be read")
    }
}

/// The files of each circle, without what they all begin with.
pub fn circles(findings: &Findings) -> Vec<Vec<&str>> {
    let short = |file| {
        let file: &String = file;
        file.strip_prefix("crates/one/src/").unwrap_or(file)
    };
    findings.circles.iter().map(|c| c.files.iter().map(short).collect()).collect()
}
