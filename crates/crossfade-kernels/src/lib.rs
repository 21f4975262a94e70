//! The loops that take most of the time of training and sampling: slices in, slices out, no tensor engine.
//!
//! Every function gives the same bits for any number of threads: work is cut into chunks of a fixed size, and the results
//! of the chunks are combined in order. There are as many threads as the current rayon pool has.
//!
//! The layers, from the bottom: `simd` has the vector operations of every instruction set and the dispatch between them,
//! `team` the threads, `workspace` the buffers; `product` is the matrix product in registers that all convolutions,
//! attentions and dense layers use, `layout` and `winograd` are what convolutions share besides. The public modules are
//! the operations of a network.

mod adamw;
pub mod attention;
pub mod batch_norm;
pub mod channel_norm;
pub mod channels_last;
pub mod concat;
pub mod conv;
pub mod dropout;
pub mod elementwise;
mod flush;
mod layout;
pub mod linear;
pub mod linear_attention;
pub mod norm;
mod peak;
pub mod planes;
mod product;
mod reduce;
pub mod resample;
mod simd;
mod team;
#[cfg(test)]
mod testing;
mod winograd;
mod workspace;

pub use adamw::{AdamW, adamw_step, ema_update};
pub use flush::flush_subnormals;
pub use peak::fma_peak;
pub use reduce::{all_finite, sum_sq};
pub use simd::Isa;

/// Elements that a thread takes at a time: 64 KiB of each array, so that the cost of handing them out does not count.
const CHUNK: usize = 1 << 14;
