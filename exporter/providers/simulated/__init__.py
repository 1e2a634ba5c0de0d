"""The provider of simulated devices: believable GPUs of several vendors, whose true energy is known."""
