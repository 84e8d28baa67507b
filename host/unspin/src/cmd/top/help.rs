// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page that F1 shows.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Paragraph, Widget};

const TEXT: &str = "\
unspin top: what VMs lose, on what, as it happens

A line is a VM, all its vCPUs together. Shares are of their wall time.
  guest   in the guest              idle   asleep: nothing to do, or stopped
  lost    the sum of the causes below, as far as they are known; ? is unknown
  C contention    a vCPU could run, and somebody else has its CPU, or its quota
                  is spent
  S spin-switch   pause-loop exits, and spinning before them (estimated)
  I idle-switch   going to sleep and waking up
  P ipi           interrupts
  U user-spin     spinning in user space (estimated; needs the module)
  K cache         caches that vCPUs do not share: not counted

  Up Down PgUp PgDn Home End j k  move       F5 Enter Right  a VM's vCPUs
  Esc Left Backspace              back       F4 \\ /          filter by name
  F6 < >                          sort by    I               invert the order
  P N L    sort by guest, name, lost         Z p Space       pause
  F1 h ?                          this page  F10 q Ctrl-C    quit
  Ctrl-Z                          stop       Ctrl-L          draw anew

Below a VM's vCPUs stands what would help. unspin diagnose VM tells more.";

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
