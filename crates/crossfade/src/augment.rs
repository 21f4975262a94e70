//! The augmentation pipe of SPEC §2.6 on host images.
