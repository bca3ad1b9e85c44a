"""How long a kernel runs on a device where it was not measured: physics, with constants from public measurements."""
