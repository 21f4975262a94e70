//! Access to the memory of the CPU backend's tensors, and a pool from which results get their memory. No other file
//! depends on how the backend stores a tensor.
//!
//! When an operation has consumed an input to which nothing else refers, the input's memory goes into the pool and is
//! reused for later results. A network requests the same sizes again and again, and the page faults of fresh memory
//! would cost as much time as the computation.
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Whether the CPU kernels apply to `x`: f32 on the CPU, with or without gradients.
pub(crate) fn has_kernels<const D: usize>(x: &Tensor<D>) -> bool {
    // The comparison ignores whether a device records gradients.
    x.device() == Device::flex() && x.dtype() == DType::F32
}

/// An input of a kernel, with its values in row-major order. Views with other strides are copied once.
pub struct Contiguous(FlexTensor);

impl Contiguous {
    pub fn new(tensor: FlexTensor) -> Self {
        assert_eq!(tensor.dtype(), DType::F32, "the CPU kernels compute in f32");
        Self(if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() })
    }

    pub fn values(&self) -> &[f32] {
        self.0.as_slice().expect("contiguous f32")
    }

    pub fn dims<const D: usize>(&self) -> [usize; D] {
        self.0.layout().shape().dims()
    }

    pub fn shape(&self) -> Shape {
        self.0.layout().shape().clone()
    }

    /// The tensor's memory; `None` if the tensor is a view of a part of it.
    pub fn memory(&self) -> Option<Arc<Bytes>> {
        (self.0.bytes().len() == 4 * self.values().len()).then(|| self.0.data_arc())
    }

    /// The tensor itself, sharing its memory.
    pub fn share(&self) -> FlexTensor {
        self.0.clone()
    }
}

impl Drop for Contiguous {
    fn drop(&mut self) {
        let memory = self.0.data_arc();
        // The two strong references are the tensor's and `memory`; weak ones belong to prepared weights (prepared.rs).
        let free = Arc::strong_count(&memory) == 2 && Arc::weak_count(&memory) == 0;
        // Only memory without other owners may be overwritten by a later result.
        if free && memory.len() >= SMALL {
            pool().put(self.0.clone());
        }
    }
}

/// Memory for a result, taken from the pool if it has a block of that size.
pub struct OutputBuffer(FlexTensor);

impl OutputBuffer {
    /// `len` numbers of unspecified value: the kernels write every element.
    pub fn new(len: usize) -> Self {
        let old = if 4 * len < SMALL { None } else { pool().take(4 * len) };
        Self(old.unwrap_or_else(|| {
            FlexTensor::new(Bytes::from_elems(vec![0.0f32; len]), Layout::contiguous(Shape::new([len])), DType::F32)
        }))
    }

    pub fn values(&mut self) -> &mut [f32] {
        self.0.try_storage_mut().expect("nobody else knows this tensor")
    }

    /// The finished tensor.
    pub(crate) fn into_tensor(self, shape: impl Into<Shape>) -> FlexTensor {
        let shape = shape.into();
        assert_eq!(self.0.bytes().len(), 4 * shape.num_elements());
        self.0.with_layout(Layout::contiguous(shape))
    }
}

/// Bytes below which the system's allocator is as fast as the pool.
const SMALL: usize = 1 << 14;

/// After this many requests, about several training steps, an unused block is returned to the system.
const MAX_IDLE_REQUESTS: u64 = 4096;

/// Unused blocks, each with the request count at its return, oldest first.
struct Pool {
    idle: VecDeque<(u64, FlexTensor)>,
    requests: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: VecDeque::new(), requests: 0 });

fn pool() -> std::sync::MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn put(&mut self, tensor: FlexTensor) {
        self.idle.push_back((self.requests, tensor));
    }

    /// The most recently returned block of exactly `bytes`, since it is the most likely one to be in the processor's
    /// cache.
    fn take(&mut self, bytes: usize) -> Option<FlexTensor> {
        self.requests += 1;
        while self.idle.front().is_some_and(|(since, _)| since + MAX_IDLE_REQUESTS < self.requests) {
            self.idle.pop_front();
        }
        // The thread that returned the block may not have dropped its own reference yet.
        let fits = |(_, t): &(u64, FlexTensor)| t.bytes().len() == bytes && t.is_unique();
        let at = self.idle.iter().rposition(fits)?;
        self.idle.remove(at).map(|(_, tensor)| tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_once_nobody_holds_it() {
        let len = 123_457;
        let mut buffer = OutputBuffer::new(len);
        buffer.values().fill(1.0);
        let tensor = buffer.into_tensor([len]);
        let held = tensor.clone();
        drop(Contiguous::new(tensor));
        let mut other = OutputBuffer::new(len);
        other.values().fill(2.0);
        assert!(Contiguous::new(held.clone()).values().iter().all(|&v| v == 1.0), "memory in use was given away");
        let address = held.bytes().as_ptr();
        drop(Contiguous::new(held));
        assert_eq!(OutputBuffer::new(len).into_tensor([len]).bytes().as_ptr(), address);
    }
}
