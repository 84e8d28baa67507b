// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine sim models the module as the agent sets it. Both are asked: the agent writes the files of a
//! module, and the simulator builds its machine, for the same runs.

use unspin_scenario::module::ModuleSettings;
use unspin_scenario::plan::{ApleParams, Arm, Coscheduling, Op, Run, Step, Window, YieldTo};
use unspin_scratch::Scratch;
use unspin_sim::{Host, Kernel, Setup};

/// The directory of a module that can do all.
fn module() -> Scratch {
    let root = Scratch::new();
    root.line("window_control", "vmx");
    let nothing = run(Window::Stock, YieldTo::Stock);
    for (file, value) in ModuleSettings::of(&nothing, &nothing.arm).files() {
        root.write(format!("default/{file}"), value);
    }
    root
}

fn run(window: Window, yield_to: YieldTo) -> Run {
    Run {
        arm: Arm { name: "a".into(), window, yield_to, ..Arm::default() },
        ..Run::new(vec![Step::new(Op::Compute, 1000)], 2, 2)
    }
}

fn runs() -> Vec<Run> {
    let own = ApleParams {
        window_init_cycles: 700,
        window_min_cycles: 600,
        window_max_cycles: 9000,
        delta_cycles: 30,
        delta_max_cycles: 40,
        epoch_min_us: 50,
        epoch_ple_exits: 60,
    };
    let windows = [
        Window::Stock,
        Window::Off,
        Window::Fixed { cycles: 2048 },
        Window::Aple(ApleParams::default()),
        Window::Aple(own),
    ];
    let mut all = Vec::new();
    for window in windows {
        for yield_to in YieldTo::all() {
            for observe in [true, false] {
                for (epoch_ple_exits, epoch_min_us) in [(None, None), (Some(50), Some(3000))] {
                    let mut run = run(window.clone(), yield_to);
                    run.arm = Arm { observe, ..run.arm };
                    if unspin_scenario::module::acts(&run.arm) && observe {
                        let ways = [Coscheduling::None, Coscheduling::Con, Coscheduling::VcrdPle];
                        run.arm.coscheduling = ways[all.len() % 3];
                        run.arm.turn_us = epoch_min_us;
                    }
                    let run = run.with(|vm| vm.spin_intensive = all.len() % 2 == 0);
                    all.push(Run { epoch_ple_exits, epoch_min_us, ..run });
                }
            }
        }
    }
    all
}

#[test]
fn the_simulator_models_the_module_as_the_agent_sets_it() {
    let module = module();
    let mut seen = Vec::new();
    for run in runs() {
        let modelled = Setup::new(&Host::lab(4, Kernel::V6_12), &run).module_settings();
        let modelled = modelled.unwrap_or_else(|e| panic!("{:?}: {e}", run.arm));
        assert_eq!(modelled.len(), 2);
        match unspin_agent::settings_for(&module, &run) {
            Ok(set) => {
                assert!(modelled.iter().all(|m| *m == set), "{:?}: {set:?}", run.arm);
                if !seen.contains(&set) {
                    seen.push(set);
                }
            }
            Err(why) => panic!("{why}"),
        }
    }
    assert!(seen.len() > 60, "{} different settings", seen.len());
}

#[test]
fn a_module_that_is_not_there_is_an_error() {
    let nothing = run(Window::Stock, YieldTo::Stock);
    let said = unspin_agent::settings_for("/nonexistent".as_ref(), &nothing).unwrap_err();
    assert!(said.to_string().contains("/nonexistent"), "{said}");
}
