// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asymmetric vCPUs: CPU time, wake-up latency and cores by what each vCPU can use.
//!
//! Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey
//! Institute of Technology, sections 5.4.1 to 5.4.3.
//!
//! ```
//! use unspin_shape::asym::{allocate, Params, Vcpu};
//!
//! // Section 5.4.1: both were given 40 ms; one used 35, the other all and could go on.
//! let params = Params::default();
//! let mut vcpus = [Vcpu::new(&params, 0), Vcpu::new(&params, 1)];
//! for (vcpu, used_ms, ready) in [(0, 35, 0), (1, 40, 1)] {
//!     vcpus[vcpu].allocated_ns = 40_000_000;
//!     vcpus[vcpu].consumed_ns = used_ms * 1_000_000;
//!     vcpus[vcpu].ready = ready;
//! }
//! allocate(&mut vcpus, &params, 80_000_000, 0);
//! assert_eq!(vcpus.map(|vcpu| vcpu.allocated_ns / 100_000), [354, 445]); // 35.4, 44.56 ms
//! ```

// As declared in `policy/asym.h`.
extern "C" {
    fn asym_params_check(_: *const Params) -> i32;
    fn asym_vcpu_init(_: *mut Vcpu, _: *const Params, core: u32);
    fn asym_latency(_: *mut Vcpu, count: u32, _: *const Params);
    fn asym_allocate(_: *mut Vcpu, count: u32, _: *const Params, vm_ns: u64, switch_ns: u64);
    fn asym_resolve_time(_: *mut Vcpu, _: u32, _: *mut Core, _: u32, _: *const Params) -> u32;
    fn asym_resolve_urgency(_: *mut Vcpu, _: u32, _: *const Core, _: u32, _: *const Params) -> u32;
}

/// Parameters of the three components. Growth, imbalance and ratio are the text's; the others are
/// this project's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The prediction of an unmet demand grows by this share; at most 10⁶.
    pub grow_ppm: u32,
    /// Lower bound of predicted demands.
    pub demand_min_us: u32,
    /// Lowest wake-up latency, at least 1.
    pub latency_min_us: u32,
    /// Highest.
    pub latency_max_us: u32,
    /// Initial wake-up latency of a vCPU.
    pub latency_init_us: u32,
    /// A latency at or below it is of high urgency; below `latency_max_us`.
    pub urgent_us: u32,
    /// Cores conflict if their allocated times differ by more than this share.
    pub imbalance_ppm: u32,
    /// Cores conflict if one has more than this many times the other's urgent conflicts; at least
    /// 1.
    pub conflict_ratio: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            grow_ppm: 100_000,
            demand_min_us: 1_000,
            latency_min_us: 250,
            latency_max_us: 16_000,
            latency_init_us: 4_000,
            urgent_us: 1_000,
            imbalance_ppm: 100_000,
            conflict_ratio: 2,
        }
    }
}

impl Params {
    /// Checks that the parameters are consistent. The other functions are memory-safe without this.
    ///
    /// # Errors
    /// What contradicts the others.
    pub fn check(&self) -> Result<(), &'static str> {
        // SAFETY: a valid reference for the duration of the call.
        Err(match unsafe { asym_params_check(self) } {
            0 => return Ok(()),
            1 => "grow_ppm is above 1000000",
            3 => "latency_min_us is 0",
            4 => "latency_max_us is below latency_min_us",
            5 => "latency_init_us is outside latency_min_us..latency_max_us",
            6 => "urgent_us is not below latency_max_us",
            _ => "conflict_ratio is 0",
        })
    }
}

/// One vCPU: what it did in a period, and what it is given in the next. Any values are valid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// CPU time given to it; written by [`allocate`].
    pub allocated_ns: u64,
    /// CPU time it used in the period that ended.
    pub consumed_ns: u64,
    /// Bit i: vCPU i of its VM sent it a wake-up inter-processor interrupt in the period.
    pub wakers: u64,
    /// Written by [`latency`].
    pub latency_us: u32,
    /// Written by the resolvers.
    pub core: u32,
    /// 1: it could still make progress at the end of the period.
    pub ready: u8,
    /// Scratch.
    pub change: u8,
    /// Its VM: the resolvers keep siblings apart.
    pub vm: u16,
    pub reserved: [u8; 4],
}

impl Vcpu {
    /// A vCPU of which nothing is known yet.
    pub fn new(params: &Params, core: u32) -> Self {
        let mut vcpu = Vcpu::default();
        // SAFETY: valid references for the duration of the call.
        unsafe { asym_vcpu_init(&mut vcpu, params, core) };
        vcpu
    }
}

/// A core, as input of the resolvers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Written by [`resolve_time`].
    pub allocated_ns: u64,
    /// How often vCPUs of high urgency on it were preempted or waited longer than their latency.
    pub conflicts: u64,
    /// Written by [`resolve_time`].
    pub vcpus: u32,
    pub reserved: u32,
}

fn count<T>(slots: &[T]) -> u32 {
    u32::try_from(slots.len()).expect("fewer than 2^32 vCPUs and cores")
}

/// Section 5.4.2: adjusts the wake-up latencies of one VM's vCPUs. Before [`allocate`].
pub fn latency(vcpus: &mut [Vcpu], params: &Params) {
    // SAFETY: count vCPUs are there to read and write.
    unsafe { asym_latency(vcpus.as_mut_ptr(), count(vcpus), params) };
}

/// Section 5.4.1: distributes the CPU time of the VM's next period, `vm_ns` less what switching
/// its vCPUs cost, by predicted demand, to the nanosecond.
pub fn allocate(vcpus: &mut [Vcpu], params: &Params, vm_ns: u64, switch_ns: u64) {
    // SAFETY: count vCPUs are there to read and write.
    unsafe { asym_allocate(vcpus.as_mut_ptr(), count(vcpus), params, vm_ns, switch_ns) };
}

/// Section 5.4.3: evens out the cores with the most and the least allocated time by one swap or
/// move. Returns how many of the host's vCPUs changed their core.
pub fn resolve_time(vcpus: &mut [Vcpu], cores: &mut [Core], params: &Params) -> u32 {
    let (vcpu_count, core_count) = (count(vcpus), count(cores));
    // SAFETY: that many vCPUs and cores are there to read and write.
    unsafe {
        asym_resolve_time(vcpus.as_mut_ptr(), vcpu_count, cores.as_mut_ptr(), core_count, params)
    }
}

/// Section 5.4.3: separates vCPUs of high urgency that conflict. Returns how many of the host's
/// vCPUs changed their core.
pub fn resolve_urgency(vcpus: &mut [Vcpu], cores: &[Core], params: &Params) -> u32 {
    let (vcpu_count, core_count) = (count(vcpus), count(cores));
    // SAFETY: that many vCPUs are there to read and write, and cores to read.
    unsafe {
        asym_resolve_urgency(vcpus.as_mut_ptr(), vcpu_count, cores.as_ptr(), core_count, params)
    }
}

const _: () = {
    assert!(std::mem::size_of::<Params>() == 32);
    assert!(std::mem::size_of::<Vcpu>() == 40);
    assert!(std::mem::size_of::<Core>() == 24);
};
