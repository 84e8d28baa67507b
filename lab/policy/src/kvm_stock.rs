// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM's own behaviour on a PLE exit, by version: the baselines.
//!
//! Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, section 2.3, and the kernels named by
//! [`Variant`].
//!
//! ```
//! use unspin_policy::kvm_stock::{Search, Variant, Vcpu, Yield};
//!
//! let mut vcpus = [Vcpu::RUNNING, Vcpu::PREEMPTED, Vcpu::PREEMPTED];
//! let mut last_boosted = 0;
//! let mut search = Search::start(&mut vcpus, 0, last_boosted, Variant::V6_12, true);
//! assert_eq!(search.next(&mut vcpus), Some(1));
//! search.result(&mut last_boosted, Yield::NotPossible); // it migrated meanwhile
//! assert_eq!(search.next(&mut vcpus), Some(2));
//! search.result(&mut last_boosted, Yield::Boosted);
//! assert_eq!(search.next(&mut vcpus), None);
//! search.finish(&mut vcpus);
//! assert_eq!(last_boosted, 2);
//! ```

use crate::sys;

/// KVM's initial value of AMD's pause filter, and the largest that its 16 bits hold, in PAUSEs.
pub const WINDOW_PAUSES_SVM: u32 = 3000;
pub const WINDOW_PAUSES_MAX_SVM: u32 = 65535;

/// The kernel version whose rules apply. The numbers are part of the trace format.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Candidates were preempted; two passes; the window is a signed int.
    V3_19 = 0,
    /// Candidates are ready (also just woken) and not in user mode; two passes.
    V6_12 = 1,
    /// One pass; stores the number of steps where the vCPU's index belongs.
    V6_13IndexBug = 2,
    /// One pass, fixed.
    V6_19 = 3,
}

/// The module parameters `ple_window`, `ple_window_grow`, `_shrink` and `_max`. In cycles
/// on VMX; on SVM from 4.18 on a count of PAUSEs. Any values are valid.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowParams {
    pub base_cycles: u32,
    /// A factor if below `base_cycles`, else cycles to add; 0 returns to base.
    pub grow: u32,
    /// A divisor if below `base_cycles`, else cycles to subtract; 0 returns to base.
    pub shrink: u32,
    pub max_cycles: u32,
}

impl WindowParams {
    /// The initial parameters of an Intel host with this version.
    pub fn defaults(variant: Variant) -> Self {
        let mut params = WindowParams { base_cycles: 0, grow: 0, shrink: 0, max_cycles: 0 };
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::kvm_stock_window_defaults(&mut params, variant as u32) };
        params
    }

    /// The vCPU's next window after a PLE exit.
    pub fn grow(&self, variant: Variant, window_cycles: u32) -> u32 {
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::kvm_stock_window_grow(self, variant as u32, window_cycles) }
    }

    /// The vCPU's window when it is loaded after having been scheduled out.
    pub fn shrink(&self, variant: Variant, window_cycles: u32) -> u32 {
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::kvm_stock_window_shrink(self, variant as u32, window_cycles) }
    }
}

/// One vCPU as `kvm_vcpu_on_spin` sees it; each field is 0 or 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// Runnable and not running: preempted or just woken.
    pub ready: u8,
    /// Scheduled out while runnable, not in since.
    pub preempted: u8,
    /// Sleeps in the kernel's halt wait queue.
    pub blocking: u8,
    /// Has an event that would end such a sleep.
    pub runnable: u8,
    /// Was in guest kernel mode when preempted.
    pub in_kernel: u8,
    /// Has an interrupt to deliver; KVM sees it only with APICv or AVIC active.
    pub interrupt_pending: u8,
    /// Is inside `kvm_vcpu_on_spin` itself.
    pub in_spin_loop: u8,
    /// The paper's "checked" label: the next check may select it.
    pub dy_eligible: u8,
}

impl Vcpu {
    pub const RUNNING: Vcpu = Vcpu {
        ready: 0,
        preempted: 0,
        blocking: 0,
        runnable: 0,
        in_kernel: 1,
        interrupt_pending: 0,
        in_spin_loop: 0,
        dy_eligible: 0,
    };
    /// Its time slice ended in guest kernel mode.
    pub const PREEMPTED: Vcpu = Vcpu { ready: 1, preempted: 1, ..Vcpu::RUNNING };
    /// Preempted inside its own PLE exit.
    pub const PREEMPTED_SPINNING: Vcpu = Vcpu { in_spin_loop: 1, ..Vcpu::PREEMPTED };
}

/// The result of `yield_to` for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// The candidate was boosted.
    Boosted,
    /// It runs already, sleeps, or is of another scheduling class: `yield_to` gave 0.
    NotPossible,
    /// Both run queues hold one task, so a yield gains nothing (`-ESRCH`). Three of these end the
    /// search.
    Failed,
}

/// The C form of [`Search`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchState {
    pub variant: u32,
    pub count: u32,
    pub caller: u32,
    pub first: u32,
    pub ahead: u32,
    pub step: u32,
    pub tries: u32,
    pub yielded: i32,
    pub kernel_mode_only: u8,
    pub offered: u8,
    pub done: u8,
    pub idle: u8,
}

/// One call of `kvm_vcpu_on_spin`: [`start`](Search::start), then [`next`](Search::next) and
/// [`result`](Search::result) in turn until there is no next, then [`finish`](Search::finish).
/// Searches of several vCPUs may overlap on the same `vcpus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search(SearchState);

impl Search {
    /// `caller` took a PLE exit. `kernel_mode_only` passes over vCPUs preempted in user
    /// mode: true on VMX, whether the caller is in kernel mode on SVM.
    pub fn start(
        vcpus: &mut [Vcpu],
        caller: usize,
        last_boosted: u32,
        variant: Variant,
        kernel_mode_only: bool,
    ) -> Self {
        let count = u32::try_from(vcpus.len()).expect("fewer than 2^32 vCPUs");
        let caller = u32::try_from(caller).unwrap_or(u32::MAX);
        let mut state = SearchState {
            variant: variant as u32,
            count,
            caller,
            kernel_mode_only: kernel_mode_only.into(),
            ..SearchState::default()
        };
        // SAFETY: count vCPUs are there to read and write.
        unsafe { sys::kvm_stock_search_init(&mut state, vcpus.as_mut_ptr(), last_boosted) };
        Search(state)
    }

    /// The next vCPU to yield to. Report the result by [`Search::result`].
    ///
    /// # Panics
    /// If `vcpus` has fewer vCPUs than at the start.
    pub fn next(&mut self, vcpus: &mut [Vcpu]) -> Option<usize> {
        assert!(vcpus.len() >= self.0.count as usize, "vCPUs went missing during a search");
        // SAFETY: count vCPUs are there to read and write.
        let index = unsafe { sys::kvm_stock_search_next(&mut self.0, vcpus.as_mut_ptr()) };
        usize::try_from(index).ok()
    }

    /// Reports the result of the yield to the last candidate. Success sets `last_boosted`.
    pub fn result(&mut self, last_boosted: &mut u32, outcome: Yield) {
        let yielded = match outcome {
            Yield::Boosted => 1,
            Yield::NotPossible => 0,
            Yield::Failed => -3, // -ESRCH
        };
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::kvm_stock_search_result(&mut self.0, last_boosted, yielded) };
    }

    /// The caller returns to its guest.
    ///
    /// # Panics
    ///
    /// If `vcpus` has fewer vCPUs than at the start.
    pub fn finish(mut self, vcpus: &mut [Vcpu]) {
        assert!(vcpus.len() >= self.0.count as usize, "vCPUs went missing during a search");
        // SAFETY: count vCPUs are there to read and write.
        unsafe { sys::kvm_stock_search_deinit(&mut self.0, vcpus.as_mut_ptr()) };
    }
}

const _: () = {
    assert!(std::mem::size_of::<WindowParams>() == 16);
    assert!(std::mem::size_of::<Vcpu>() == 8);
    assert!(std::mem::size_of::<SearchState>() == 36);
};
