// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C functions as they are declared in `policy/*.h`. Prefer the safe modules.

pub use crate::aple::raw::*;
pub use crate::credit::raw::*;
pub use crate::demand::raw::*;
pub use crate::gang::raw::*;
pub use crate::hvs::raw::*;
pub use crate::kvm_stock::raw::*;
pub use crate::userspin::raw::*;
pub use crate::vcrd::raw::*;
pub use unspin_shape::asym::raw::*;
