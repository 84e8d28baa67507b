# Sourced by the init: a shell on the console.
load || dmesg | tail -n 5
echo
echo "$(uname -r) under QEMU. The module's files are in /sys/module/unspin, unspin-agent is in /bin."
echo "Leave the shell (exit, or Ctrl-D) to switch the computer off."
export PS1='lab# ' HOME=/root TERM=linux
cd /root || cd /
setsid cttyhack sh
poweroff -f
