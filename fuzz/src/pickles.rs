//! Pickles by hand, for seeds: state dicts as PyTorch writes them, and a batch of CIFAR-10.

pub fn string(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

pub fn int(n: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &n.to_le_bytes()].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(", &items.concat()[..], b"t"].concat()
}

pub fn list(texts: &[&str]) -> Vec<u8> {
    [b"](", &texts.iter().flat_map(|text| string(text)).collect::<Vec<_>>()[..], b"e"].concat()
}

pub fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<u8> = entries.iter().flat_map(|(k, v)| [string(k), v.clone()].concat()).collect();
    [b"}(", &items[..], b"u"].concat()
}

/// A tensor on the storage `key` of `count` numbers.
fn tensor(class: &str, key: &str, count: i64, shape: &[i64], stride: &[i64]) -> Vec<u8> {
    let ints = |sides: &[i64]| tuple(&sides.iter().map(|&side| int(side)).collect::<Vec<_>>());
    let class = format!("ctorch\n{class}\n").into_bytes();
    let id = [tuple(&[string("storage"), class, string(key), string("cpu"), int(count)]), b"Q".to_vec()].concat();
    let hooks = b"ccollections\nOrderedDict\n)R".to_vec();
    let arguments = tuple(&[id, int(0), ints(shape), ints(stride), vec![0x89], hooks]);
    [b"ctorch._utils\n_rebuild_tensor_v2\n", &arguments[..], b"R"].concat()
}

/// A state dict of two tensors whose names begin with `prefix`, and its storages.
pub fn small(prefix: &str) -> (Vec<u8>, [(&'static str, Vec<u8>); 2]) {
    let root = dict(&[
        (&format!("{prefix}w"), tensor("FloatStorage", "0", 6, &[2, 3], &[3, 1])),
        (&format!("{prefix}b"), tensor("FloatStorage", "1", 2, &[2], &[1])),
    ]);
    (root, [("0", vec![0x3f; 24]), ("1", vec![0x3e; 8])])
}

/// A batch of CIFAR-10 with one image, as Python writes it, up to the bytes of the image.
pub const CIFAR_HEAD: &[u8] = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x04testq\x03U\x06labelsq\x04]q\x05K\x06aU\x04dataq\x06\
cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x0a(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x0b\
U\x02u1K\x00K\x01\x87Rq\x0c(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00";

/// What follows them.
pub const CIFAR_TAIL: &[u8] = b"tbu.";
