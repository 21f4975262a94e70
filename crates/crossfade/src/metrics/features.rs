//! Distances between sets of images through the features of Inception: FID, KID, precision and recall, IS.
