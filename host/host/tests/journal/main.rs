// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of changes: what is put back, whatever happens to its writer and to its file.

mod any_step;
mod full;
mod kept;
mod world;
