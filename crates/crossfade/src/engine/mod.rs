//! THE engine vocabulary: devices, tensors from and to the host.
