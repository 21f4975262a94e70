//! Saliency maps against masks.
