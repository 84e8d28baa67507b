// SPDX-License-Identifier: MIT OR Apache-2.0
//! Examples of the manual pages.

use unspin_cli::man::Examples;

pub const EXAMPLES: Examples = Examples {
    command: "\
unspin top  # Show all VMs, live.
unspin diagnose web1  # Show how much time VM web1 loses, why, and what would help.
unspin load --check  # Say whether this host can have the module.",
    subcommands: "\
unspin top  # Show all VMs; F1 lists the keys.
unspin top --filter web --sort name  # Show VMs whose name contains web, from A to Z.
unspin top --once --json --delay 5  # Measure for 5 s, and print JSON.
unspin diagnose  # Watch all VMs for 10 s.
unspin diagnose web1 --seconds 60 --json  # Watch web1 for a minute, and print JSON.
unspin diagnose web1 --ab cache  # Compare web1 as it is with web1 on CPUs that share a last-level cache. This \
changes the VM while it runs.
unspin diagnose --put-back  # Restore what a killed experiment has changed.
unspin neighbours  # Show who competes with the VMs of this host, and what each gets.
unspin neighbours web1 --seconds 30  # Show the cgroups around web1, and those inside its own.
unspin spinners web1 --seconds 10  # Show where the vCPUs of web1 spin, as addresses.
unspin spinners web1 --kallsyms web1.kallsyms  # The same by function, with a copy of the guest's /proc/kallsyms.
unspin export  # Serve http://127.0.0.1:19455/metrics.
unspin export --listen 192.0.2.7:19455 --vcpus-max 4096  # Listen on another address, for up to 4096 vCPUs.
unspin load --check  # Say whether this host can have the module, and why.
unspin load --check --json  # The same for programs.
unspin load  # Load the module; every VM stays in mode off.
unspin load --build  # Build it from the sources first.
unspin unload  # Set every VM to mode off, and unload the module.
unspin status  # Show the module and every VM.
unspin status --json  # The same with all counters, as JSON.
unspin set mode=observe  # Count in all VMs without a mode of their own; change nothing.
unspin set --vm web1 mode=hvs  # Turn on HVS for web1.
unspin set --vm web1 mode=hvs coscheduling=vcrd-both  # Also let its vCPUs run together while they spin in user space.
unspin set --vm web1 reset=1  # Set the counters of web1 to 0.
unspin set mode=off  # Leave every VM to KVM.
unspin shape --dry-run --once  # Show what would be set for all VMs, and exit.
unspin shape web1  # Divide the CPU time of web1 among its vCPUs until Ctrl-C.
unspin schedule --check  # Report whether this kernel supports the scheduler, and why.
unspin schedule --cpus 8-63  # Schedule all VMs that may run on CPUs 8 to 63, until Ctrl-C.
unspin schedule --cpus 8-63 --trace trace.jsonl  # Also write each decision, for `unspin-lab replay trace.jsonl`.
unspin schedule --cpus 8-63 web1 db1 --gang db1  # Schedule 2 VMs, and always run the vCPUs of db1 together.
unspin apply --check  # Check /etc/unspin/unspin.toml, and change nothing.
unspin apply  # Apply it once.
unspin run -- ./program  # Run a program with spin locks whose waiters nap.
unspin run --mutex --verbose -- ./program  # Replace its mutexes too, and count on standard error how many locks \
were taken.
unspin completions bash > /etc/bash_completion.d/unspin  # Complete options and settings in bash; the packages do \
this.
unspin man | man -l -  # Show the page of the command.
unspin man /usr/local/share/man/man1  # Write all pages; the packages do this.",
};
