// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's settings in an arm: the agent writes them to the module's files, the simulator
//! models them.

use crate::plan::Run;
use crate::schema::arm::{
    ApleParams, Arm, Coscheduling as Asked, CoschedulingMechanism, Window, YieldTo,
};
use unspin_uapi::{Coscheduling, Mode, Number, Variant, COSCHEDULING, HVS_VARIANT, MODE};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModuleSettings {
    pub mode: Mode,
    pub variant: Variant,
    pub aple: ApleParams,
    pub coscheduling: Coscheduling,
    pub turn_us: u32,
    pub wait_for_turns: bool,
}

impl ModuleSettings {
    /// The settings of a VM of `run` to which `arm` applies.
    pub fn of(run: &Run, arm: &Arm) -> ModuleSettings {
        let default = ApleParams::default();
        let epochs = ApleParams {
            epoch_ple_exits: run.epoch_ple_exits.unwrap_or(default.epoch_ple_exits),
            epoch_min_us: run.epoch_min_us.unwrap_or(default.epoch_min_us),
            ..default
        };
        let aple = match arm.window {
            Window::Aple(params) => params,
            Window::Fixed { cycles } => ApleParams {
                window_init_cycles: cycles,
                window_min_cycles: cycles,
                window_max_cycles: cycles,
                delta_cycles: 0,
                delta_max_cycles: 0,
                ..epochs
            },
            Window::Stock | Window::Off => epochs,
        };
        ModuleSettings {
            mode: mode(arm),
            variant: arm.yield_to.variant().unwrap_or(Variant::DEFAULT),
            aple,
            coscheduling: coscheduling(arm),
            turn_us: arm.turn_us.unwrap_or(Number::TURN.default()),
            wait_for_turns: Number::WAIT_FOR_TURNS.default() != 0,
        }
    }

    /// Reads settings from files named as in [`ModuleSettings::files`]; `None` if one is missing or
    /// invalid.
    pub fn read(of: impl Fn(&str) -> Option<String>) -> Option<ModuleSettings> {
        let number = |number: Number| of(number.file())?.parse::<u32>().ok();
        Some(ModuleSettings {
            mode: Mode::of(&of(MODE)?)?,
            variant: Variant::of(&of(HVS_VARIANT)?)?,
            aple: ApleParams {
                window_init_cycles: number(Number::WINDOW_INIT)?,
                window_min_cycles: number(Number::WINDOW_MIN)?,
                window_max_cycles: number(Number::WINDOW_MAX)?,
                delta_cycles: number(Number::DELTA)?,
                delta_max_cycles: number(Number::DELTA_MAX)?,
                epoch_min_us: number(Number::EPOCH_MIN)?,
                epoch_ple_exits: number(Number::EPOCH)?,
            },
            coscheduling: Coscheduling::of(&of(COSCHEDULING)?)?,
            turn_us: number(Number::TURN)?,
            wait_for_turns: number(Number::WAIT_FOR_TURNS)? != 0,
        })
    }

    pub fn number(&self, number: Number) -> u32 {
        match number {
            Number::WINDOW_MIN => self.aple.window_min_cycles,
            Number::WINDOW_MAX => self.aple.window_max_cycles,
            Number::WINDOW_INIT => self.aple.window_init_cycles,
            Number::DELTA => self.aple.delta_cycles,
            Number::DELTA_MAX => self.aple.delta_max_cycles,
            Number::EPOCH => self.aple.epoch_ple_exits,
            Number::EPOCH_MIN => self.aple.epoch_min_us,
            Number::TURN => self.turn_us,
            Number::WAIT_FOR_TURNS => self.wait_for_turns.into(),
        }
    }

    /// Every file of settings and its contents, in the order of writing: bounds before what they
    /// bound, the mode last.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        let numbers = Number::ALL.iter().map(|n| (n.file(), self.number(*n).to_string()));
        let words = [
            (HVS_VARIANT, self.variant.name()),
            (COSCHEDULING, self.coscheduling.name()),
            (MODE, self.mode.name()),
        ];
        numbers.chain(words.map(|(file, word)| (file, word.to_string()))).collect()
    }
}

/// Whether the module sets the window under this arm.
pub fn sets_window(arm: &Arm) -> bool {
    matches!(arm.window, Window::Fixed { .. } | Window::Aple(_))
}

/// The module's name for the arm's coscheduling. If the module does not make the turns, that is
/// none; unless `unspin schedule` makes them, and reads from the module who spins in user space.
fn coscheduling(arm: &Arm) -> Coscheduling {
    match (arm.coscheduling_mechanism, arm.coscheduling) {
        (CoschedulingMechanism::Park, _) => {}
        (CoschedulingMechanism::Scheduler, Asked::VcrdBoth) => return Coscheduling::VCRD_USER,
        _ => return Coscheduling::NONE,
    }
    match arm.coscheduling {
        Asked::None => Coscheduling::NONE,
        Asked::Con => Coscheduling::CON,
        Asked::Vcrd => Coscheduling::VCRD,
        Asked::VcrdPle => Coscheduling::VCRD_PLE,
        Asked::VcrdUser => Coscheduling::VCRD_USER,
        Asked::VcrdBoth => Coscheduling::VCRD_BOTH,
    }
}

/// Whether the module does more than count under this arm.
pub fn acts(arm: &Arm) -> bool {
    !matches!(mode(arm), Mode::OFF | Mode::OBSERVE)
}

fn mode(arm: &Arm) -> Mode {
    match (sets_window(arm), arm.yield_to, arm.observe) {
        (true, YieldTo::Stock, _) => Mode::APLE,
        (true, YieldTo::Module(_), _) => Mode::APPLES,
        (false, YieldTo::Stock, true) => Mode::OBSERVE,
        (false, YieldTo::Stock, false) => Mode::OFF,
        (false, YieldTo::Module(_), _) => Mode::HVS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(window: Window, yield_to: YieldTo, observe: bool) -> ModuleSettings {
        let run = Run {
            arm: Arm { window, yield_to, observe, ..Arm::default() },
            epoch_ple_exits: Some(50),
            epoch_min_us: Some(3000),
            ..Run::new(vec![], 1, 1)
        };
        ModuleSettings::of(&run, &run.arm)
    }

    #[test]
    fn arms_name_their_mode() {
        let aple = Window::Aple(ApleParams::default());
        let paper = YieldTo::Module(Variant::PAPER);
        for (window, yield_to, observe, mode) in [
            (Window::Stock, YieldTo::Stock, false, Mode::OFF),
            (Window::Stock, YieldTo::Stock, true, Mode::OBSERVE),
            (Window::Off, YieldTo::Stock, true, Mode::OBSERVE),
            (Window::Fixed { cycles: 1 }, YieldTo::Stock, true, Mode::APLE),
            (aple.clone(), YieldTo::Stock, false, Mode::APLE),
            (Window::Stock, paper, true, Mode::HVS),
            (aple, YieldTo::HVS, true, Mode::APPLES),
        ] {
            assert_eq!(settings(window, yield_to, observe).mode, mode);
        }
        assert_eq!(settings(Window::Stock, paper, true).variant, Variant::PAPER);
        assert_eq!(settings(Window::Stock, YieldTo::Stock, true).variant, Variant::HVS);
    }

    #[test]
    fn a_fixed_window_is_aple_that_cannot_move() {
        let fixed = settings(Window::Fixed { cycles: 2048 }, YieldTo::Stock, false);
        for number in [Number::WINDOW_INIT, Number::WINDOW_MIN, Number::WINDOW_MAX] {
            assert_eq!(fixed.number(number), 2048);
        }
        assert_eq!(fixed.number(Number::DELTA), 0);
        assert_eq!(fixed.number(Number::EPOCH), 50);
        assert_eq!(fixed.number(Number::EPOCH_MIN), 3000);
    }

    #[test]
    fn turns_by_another_are_none_to_the_module() {
        let mut run = Run::new(vec![], 1, 1);
        run.arm.coscheduling = Asked::Con;
        assert_eq!(ModuleSettings::of(&run, &run.arm).coscheduling, Coscheduling::CON);
        for other in [CoschedulingMechanism::SchedExt, CoschedulingMechanism::Scheduler] {
            run.arm.coscheduling_mechanism = other;
            assert_eq!(ModuleSettings::of(&run, &run.arm).coscheduling, Coscheduling::NONE);
        }
        run.arm.coscheduling = Asked::VcrdBoth;
        assert_eq!(ModuleSettings::of(&run, &run.arm).coscheduling, Coscheduling::VCRD_USER);
    }

    #[test]
    fn defaults_are_the_modules() {
        let run = Run::new(vec![], 1, 1);
        let settings = ModuleSettings::of(&run, &run.arm);
        for number in Number::ALL {
            assert_eq!(settings.number(*number), number.default(), "{number:?}");
        }
    }

    #[test]
    fn files_are_written_bounds_first_and_the_mode_last() {
        let files = settings(Window::Stock, YieldTo::HVS, true).files();
        let at = |name: &str| files.iter().position(|(file, _)| *file == name).unwrap();
        assert!(at("window_min_cycles") < at("window_init_cycles"));
        assert!(at("window_max_cycles") < at("delta_cycles"));
        assert!(at("window_max_cycles") < at("delta_max_cycles"));
        assert_eq!(at("mode"), files.len() - 1);
        assert_eq!(files.len(), Number::ALL.len() + 3);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let written = settings(Window::Fixed { cycles: 512 }, YieldTo::HVS, true);
        let files = written.files();
        let of = |name: &str| Some(files.iter().find(|(file, _)| *file == name)?.1.clone());
        assert_eq!(ModuleSettings::read(of), Some(written));
        for (missing, _) in &files {
            let without = |name: &str| of(name).filter(|_| name != *missing);
            assert_eq!(ModuleSettings::read(without), None, "{missing}");
        }
    }
}
