//! The loops that carry the weight of training: slices in, slices out, no tensor engine.
//!
//! Every function gives the same bits for any number of threads: work is cut into chunks of a fixed size, and what the
//! chunks yield is combined in order. There are as many threads as the current rayon pool has.

pub mod adamw;
pub mod attention;
pub mod batch_norm;
pub mod channel_norm;
pub mod channels_last;
pub mod conv;
pub mod dropout;
pub mod elementwise;
pub mod flush;
mod gemm;
pub mod join;
mod lanes;
pub mod linear;
pub mod linear_attention;
pub mod norm;
pub mod planes;
mod pool;
mod product;
pub mod reduce;
pub mod resample;
mod simd;
mod team;
#[cfg(test)]
mod testing;

pub use adamw::{AdamW, adamw_step, ema_update};
pub use flush::flush_subnormals;
pub use gemm::fma_peak;
pub use reduce::{all_finite, sum_sq};
pub use simd::Isa;

/// Elements a thread takes at a time: 64 KiB an array, large against the cost of handing it out.
const CHUNK: usize = 1 << 14;
