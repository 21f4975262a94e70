//! Devices by name: one line and one cargo feature for each backend.
use burn::tensor::Device;

use crate::error::{Error, Result};

/// The names that [`device`] accepts. Each but `cpu` needs the cargo feature of the same name (`vulkan` can also be
/// enabled by `wgpu`).
pub const DEVICES: [&str; 5] = ["cpu", "cuda", "rocm", "metal", "vulkan"];

/// Opens a device: `cpu`, or `cuda`, `rocm`, `metal`, `vulkan` with an optional `:index`.
///
/// There is no silent fallback: a device that is not compiled in or not present is an error.
pub fn device(name: &str) -> Result<Device> {
    let (kind, index) = match name.split_once(':') {
        None => (name, None),
        Some((kind, index)) => {
            let index = index.parse::<usize>().map_err(|_| {
                Error::request(format!("device {name:?}: {index:?} is no index; write for example \"{kind}:0\""))
            })?;
            (kind, Some(index))
        }
    };
    match kind {
        "cpu" if index.is_none() => Ok(Device::flex()),
        "cpu" => Err(Error::request(format!("device {name:?}: there is one cpu; write \"cpu\""))),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(index.unwrap_or(0))),
        #[cfg(feature = "rocm")]
        "rocm" => Ok(Device::rocm(index.unwrap_or(0))),
        #[cfg(feature = "metal")]
        "metal" => wgpu(name, index, burn::tensor::wgpu::WgpuBackend::Metal),
        #[cfg(any(feature = "vulkan", feature = "wgpu"))]
        "vulkan" => wgpu(name, index, burn::tensor::wgpu::WgpuBackend::Vulkan),
        _ if DEVICES.contains(&kind) => Err(Error::request(format!(
            "device {name:?} is not compiled in; build with `cargo build --release --features {kind}`"
        ))),
        _ => Err(Error::request(format!("unknown device {name:?}; known are {}", DEVICES.join(", ")))),
    }
}

/// The device with gradient recording for training. With `recompute` the results of cheap operations are not kept but
/// computed again in the backward pass.
pub fn recording(device: &Device, recompute: bool) -> Device {
    let device = device.clone().autodiff();
    if recompute { device.gradient_checkpointing() } else { device }
}

/// Opens the adapter immediately; the lazy constructors would panic at first use if there is none.
#[cfg(any(feature = "metal", feature = "vulkan", feature = "wgpu"))]
fn wgpu(name: &str, index: Option<usize>, api: burn::tensor::wgpu::WgpuBackend) -> Result<Device> {
    use burn::tensor::DeviceKind;
    let kind = index.map_or(DeviceKind::DefaultDevice, DeviceKind::DiscreteGpu);
    let options = Device::wgpu_options().device_kind(kind).graphics_api(api);
    options.init().map_err(|e| Error::request(format!("device {name:?} cannot be opened: {e:?}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there() {
        assert_eq!(device("cpu").unwrap(), Device::flex());
        assert!(device("cpu:1").unwrap_err().to_string().contains("write \"cpu\""));
    }

    #[test]
    fn other_names_are_explained() {
        let error = device("gpu").unwrap_err().to_string();
        assert!(DEVICES.iter().all(|known| error.contains(known)), "{error}");
        assert!(device("vulkan:first").unwrap_err().to_string().contains("no index"));
        #[cfg(not(feature = "cuda"))]
        assert!(device("cuda:0").unwrap_err().to_string().contains("--features cuda`"));
    }
}
