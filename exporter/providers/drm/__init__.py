"""GPUs of any vendor, through the files of the kernel's DRM drivers: no vendor library is needed."""
