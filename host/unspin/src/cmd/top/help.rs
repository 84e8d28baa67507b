// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page that F1 shows.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Paragraph, Widget};

const TEXT: &str = "\
unspin top: how much time VMs lose, and to which cause

One line per VM, for all its vCPUs together: percent of their wall time.
  guest   in the guest              idle   asleep: idle, paused or stopped
  lost    sum of the causes below that are known; ? is unknown
  %RDY    could run, and had no CPU   %CSTP  of that, a sibling ran meanwhile
  %MLMTD  of that, over its quota     (of a VM the sum of its vCPUs')
  C contention    runnable, but others have the CPU, or the quota is used up
  S spin-switch   pause-loop exits, and the spinning before them (estimated)
  I idle-switch   sleep and wake-up   P ipi    interrupts
  U user-spin     spinning in user space (estimated; needs the module)
  D device        ports and memory of emulated devices, and the VMM for them
  M msr           such as timers      H cache  not measured
  O monitor       the VMM's other threads: not measured here

  Up Down PgUp PgDn Home End j k  move       F5 Enter Right  vCPUs of the VM
  Esc Left Backspace              back       F4 \\ /          filter by name
  F6 < >                          sort by    I               reverse the order
  P N L    sort by guest, name, lost         Z p Space       pause
  F1 h ?                          this page  F10 q Ctrl-C    quit
  Ctrl-Z                          suspend    Ctrl-L          redraw

The page of a VM ends with advice. unspin diagnose VM shows more.";

pub fn draw(area: Rect, buffer: &mut Buffer) {
    Clear.render(area, buffer);
    Paragraph::new(TEXT).render(area, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_the_smallest_terminal() {
        assert!(TEXT.lines().count() <= 23);
        for line in TEXT.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
