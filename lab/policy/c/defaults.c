// SPDX-License-Identifier: MIT OR Apache-2.0
/* Defaults of policy/ for Rust, which cannot read initializers. */
#include "vcrd.h"

const struct vcrd_params vcrd_defaults = VCRD_PARAMS(VCRD_THRESHOLD_LOG2_CYCLES);
