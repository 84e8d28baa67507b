// SPDX-License-Identifier: MIT OR Apache-2.0
//! Examples of the manual pages.

use unspin_cli::man::Examples;

pub const EXAMPLES: Examples = Examples {
    command: "\
unspin-lab bench scenarios/demo.toml --machine sim  # Compare the arms of a scenario on a simulated host.
unspin-lab report out/demo  # Show its tables again.",
    subcommands: "\
unspin-lab bench demo --machine sim  # Run a scenario on a simulated host, in seconds.
unspin-lab bench demo --machine emulated --resume  # Run it on emulated computers, and go on where an interrupted \
bench stopped.
unspin-lab bench demo gangs --machine sim --out out/both --json  # Run two scenarios, and print their summaries as \
JSON.
unspin-lab report out/demo  # Show the tables of existing results.
unspin-lab report out/a out/b --csv  # Print every row of both as CSV.
unspin-lab report out/demo --out page  # Write report.html, tables and pictures to page/.
unspin-lab try  # Say what unspin gains on this host, and whether any VM loses.
unspin-lab try --json  # The same for programs.
unspin-lab plan demo --list  # Print a line per run of a scenario.
unspin-lab plan demo --arm hvs  # Print the runs of one arm and of the baseline as JSON.
unspin-lab agree out/demo/results.jsonl --seeds 5  # Compare measured runs with the simulator, by 5 seeds each.
unspin-lab generate spaces/held-out.toml --seed 7 --count 10 --out out/drawn  # Draw 10 random scenarios; the same \
seed draws the same ones.
unspin-lab figures --list  # List the entries.
unspin-lab figures --out out/figures  # Make all of them, and the page reproduction.md.
unspin-lab figures --shard 1/4 --out out/1  # Make a quarter of them on this computer.
unspin-lab figures --merge out/1 out/2 out/3 out/4  # Put the quarters together.
unspin-lab model models/type1.toml models/type2.toml --simulate  # Predict how two applications scale in a VM, and \
check it with the simulator.
unspin-lab model --record web1 --for 30 -o web1.toml  # Write the profile of what runs in VM web1, and say its type.
unspin-lab replay trace.txt  # Make the decisions of a recorded trace again.
unspin-lab lab build --kernel 6.12  # Build the module for a kernel.
unspin-lab lab boot --kernel 6.1 --emulator qemu-amd  # Boot that kernel on an emulated AMD processor, and report \
whether the module works.
unspin-lab lab emulator bochs  # Build the emulator for timed runs.
unspin-lab lab guest-kernel  # Build the kernel for guests with the papers' locks.
unspin-lab lab speed --json  # Measure how fast emulated computers are here.
unspin-lab lab shell  # Open a shell on an emulated computer.
unspin-lab lab symbols 6.12 > kallsyms  # Write the symbols of a guest kernel, for `unspin spinners --kallsyms`.
unspin-lab lab clean  # Remove kernels, emulators and boots.
unspin-lab completions bash > /etc/bash_completion.d/unspin-lab  # Complete options in bash; the packages do this.
unspin-lab man | man -l -  # Show the page of the command.
unspin-lab man /usr/local/share/man/man1  # Write all pages; the packages do this.",
};
