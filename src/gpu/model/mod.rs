//! A model is a GPU product: its memory, its MIG profiles and where each may be placed.
//!
//! The one copy of the MIG rules: profile ids, multiprocessors, MiB and placements as NVML names
//! them, after go-nvml's tables of these products, engines after the MIG user guide, and memory after
//! data sheets. RTX PRO's graphics profiles are not in it. Real GPUs say all this themselves: the
//! table is for GPUs that are simulated, by `gpu/sim` and by the tests' libnvidia-ml.

use std::borrow::Cow;

/// A product.
#[derive(Debug)]
pub struct Model {
    /// The short name that a node file uses: `H100-80GB`.
    pub key: &'static str,
    /// NVML's product name.
    pub product: &'static str,
    /// NVML's architecture.
    pub architecture: &'static str,
    /// NVML's brand.
    pub brand: &'static str,
    /// CUDA compute capability.
    pub compute: (u32, u32),
    /// MiB.
    pub memory: u64,
    /// The width of the memory's bus in bits, and its highest clock in MHz.
    pub bus: (u32, u32),
    /// NVLinks, all to NVSwitches, as on an HGX board.
    pub nvlinks: u32,
    /// MIG profiles, smallest first; none where the product has no MIG.
    pub profiles: &'static [Profile],
}

/// A MIG profile: the shape of a GPU instance that one compute instance fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// `1g.10gb`, `1g.10gb+me`.
    pub name: Cow<'static, str>,
    /// NVML's GPU instance profile id.
    pub id: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// MiB.
    pub memory: u64,
    /// Memory slices that one instance takes.
    pub size: u8,
    /// The memory slices at which an instance may start, lowest first.
    pub starts: Cow<'static, [u8]>,
    /// What else one instance takes.
    pub engines: Engines,
}

/// The engines of a GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engines {
    /// Copy engines.
    pub copy: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG decoders.
    pub jpeg: u32,
    /// Optical flow accelerators.
    pub ofa: u32,
}

/// Where a GPU instance lies: memory slices `start` to `start + size - 1`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Placement {
    /// First memory slice.
    pub start: u8,
    /// Memory slices.
    pub size: u8,
}

/// Every model that divvy knows.
pub const MODELS: [Model; 8] = [
    Model {
        key: "A100-40GB",
        product: "NVIDIA A100-SXM4-40GB",
        architecture: "Ampere",
        brand: "Nvidia",
        compute: (8, 0),
        memory: 40_960,
        bus: (5_120, 1_215),
        nvlinks: 12,
        profiles: &[
            profile("1g.5gb", 19, 14, 4_864, 1, SEVEN, engines(1, 0, 0, 0)),
            profile("1g.5gb+me", 20, 14, 4_864, 1, SEVEN, engines(1, 1, 1, 1)),
            profile("1g.10gb", 15, 14, 9_856, 2, FOUR, engines(1, 1, 0, 0)),
            profile("2g.10gb", 14, 28, 9_856, 2, THREE, engines(2, 1, 0, 0)),
            profile("3g.20gb", 9, 42, 19_968, 4, HALVES, engines(3, 2, 0, 0)),
            profile("4g.20gb", 5, 56, 19_968, 4, FIRST, engines(4, 2, 0, 0)),
            profile("7g.40gb", 0, 98, 40_192, 8, FIRST, engines(7, 5, 1, 1)),
        ],
    },
    Model {
        key: "A100-80GB",
        product: "NVIDIA A100-SXM4-80GB",
        architecture: "Ampere",
        brand: "Nvidia",
        compute: (8, 0),
        memory: 81_920,
        bus: (5_120, 1_593),
        nvlinks: 12,
        profiles: &[
            profile("1g.10gb", 19, 14, 9_728, 1, SEVEN, engines(1, 0, 0, 0)),
            profile("1g.10gb+me", 20, 14, 9_728, 1, SEVEN, engines(1, 1, 1, 1)),
            profile("1g.20gb", 15, 14, 19_968, 2, FOUR, engines(1, 1, 0, 0)),
            profile("2g.20gb", 14, 28, 19_968, 2, THREE, engines(2, 1, 0, 0)),
            profile("3g.40gb", 9, 42, 40_192, 4, HALVES, engines(3, 2, 0, 0)),
            profile("4g.40gb", 5, 56, 40_192, 4, FIRST, engines(4, 2, 0, 0)),
            profile("7g.80gb", 0, 98, 80_640, 8, FIRST, engines(7, 5, 1, 1)),
        ],
    },
    Model {
        key: "H100-80GB",
        product: "NVIDIA H100 80GB HBM3",
        architecture: "Hopper",
        brand: "Nvidia",
        compute: (9, 0),
        memory: 81_559,
        bus: (5_120, 2_619),
        nvlinks: 18,
        profiles: &[
            profile("1g.10gb", 19, 16, 10_240, 1, SEVEN, engines(1, 1, 1, 0)),
            profile("1g.10gb+me", 20, 16, 10_240, 1, SEVEN, engines(1, 1, 1, 1)),
            profile("1g.20gb", 15, 16, 20_480, 2, FOUR, engines(1, 1, 1, 0)),
            profile("2g.20gb", 14, 32, 20_480, 2, THREE, engines(2, 2, 2, 0)),
            profile("3g.40gb", 9, 48, 40_960, 4, HALVES, engines(3, 3, 3, 0)),
            profile("4g.40gb", 5, 64, 40_960, 4, FIRST, engines(4, 4, 4, 0)),
            profile("7g.80gb", 0, 112, 81_920, 8, FIRST, engines(8, 7, 7, 1)),
        ],
    },
    Model {
        key: "H200-141GB",
        product: "NVIDIA H200",
        architecture: "Hopper",
        brand: "Nvidia",
        compute: (9, 0),
        memory: 143_771,
        bus: (6_144, 3_201),
        nvlinks: 18,
        profiles: &[
            profile("1g.18gb", 19, 16, 18_432, 1, SEVEN, engines(1, 1, 1, 0)),
            profile("1g.18gb+me", 20, 16, 18_432, 1, SEVEN, engines(1, 1, 1, 1)),
            profile("1g.35gb", 15, 16, 35_840, 2, FOUR, engines(1, 1, 1, 0)),
            profile("2g.35gb", 14, 32, 35_840, 2, THREE, engines(2, 2, 2, 0)),
            profile("3g.71gb", 9, 48, 72_704, 4, HALVES, engines(3, 3, 3, 0)),
            profile("4g.71gb", 5, 64, 72_704, 4, FIRST, engines(4, 4, 4, 0)),
            profile("7g.141gb", 0, 112, 144_384, 8, FIRST, engines(8, 7, 7, 1)),
        ],
    },
    Model {
        key: "B200-180GB",
        product: "NVIDIA B200",
        architecture: "Blackwell",
        brand: "Nvidia",
        compute: (10, 0),
        memory: 183_359,
        bus: (8_192, 3_996),
        nvlinks: 18,
        profiles: &[
            profile("1g.23gb", 19, 18, 23_552, 1, SEVEN, engines(1, 1, 1, 0)),
            profile("1g.23gb+me", 20, 18, 23_552, 1, SEVEN, engines(1, 1, 1, 1)),
            profile("1g.45gb", 15, 18, 46_080, 2, FOUR, engines(1, 1, 1, 0)),
            profile("2g.45gb", 14, 36, 46_080, 2, THREE, engines(2, 2, 2, 0)),
            profile("3g.90gb", 9, 54, 92_160, 4, HALVES, engines(3, 3, 3, 0)),
            profile("4g.90gb", 5, 72, 92_160, 4, FIRST, engines(4, 4, 4, 0)),
            profile("7g.180gb", 0, 126, 184_320, 8, FIRST, engines(8, 7, 7, 1)),
        ],
    },
    Model {
        key: "A30-24GB",
        product: "NVIDIA A30",
        architecture: "Ampere",
        brand: "Nvidia",
        compute: (8, 0),
        memory: 24_576,
        bus: (3_072, 1_215),
        nvlinks: 0,
        profiles: &[
            profile("1g.6gb", 14, 14, 5_952, 1, &[0, 1, 2, 3], engines(1, 0, 0, 0)),
            profile("1g.6gb+me", 21, 14, 5_952, 1, &[0, 1, 2, 3], engines(1, 1, 1, 1)),
            profile("2g.12gb", 5, 28, 11_968, 2, &[0, 2], engines(2, 2, 0, 0)),
            profile("2g.12gb+me", 6, 28, 11_968, 2, &[0, 2], engines(2, 2, 1, 1)),
            profile("4g.24gb", 0, 56, 24_000, 4, FIRST, engines(4, 4, 1, 1)),
        ],
    },
    Model {
        key: "L40S-48GB",
        product: "NVIDIA L40S",
        architecture: "Ada Lovelace",
        brand: "Nvidia",
        compute: (8, 9),
        memory: 46_068,
        bus: (384, 9_001),
        nvlinks: 0,
        profiles: &[],
    },
    Model {
        key: "T4-16GB",
        product: "Tesla T4",
        architecture: "Turing",
        brand: "Tesla",
        compute: (7, 5),
        memory: 15_360,
        bus: (256, 5_001),
        nvlinks: 0,
        profiles: &[],
    },
];

// Starts on a GPU with eight memory slices; slice 7 alone cannot hold a 1g instance.
const SEVEN: &[u8] = &[0, 1, 2, 3, 4, 5, 6];
const FOUR: &[u8] = &[0, 2, 4, 6];
const THREE: &[u8] = &[0, 2, 4];
const HALVES: &[u8] = &[0, 4];
const FIRST: &[u8] = &[0];

const fn profile(
    name: &'static str,
    id: u32,
    multiprocessors: u32,
    memory: u64,
    size: u8,
    starts: &'static [u8],
    engines: Engines,
) -> Profile {
    let (name, starts) = (Cow::Borrowed(name), Cow::Borrowed(starts));
    Profile { name, id, multiprocessors, memory, size, starts, engines }
}

/// No MIG profile has an encoder: the products with MIG have none.
const fn engines(copy: u32, decoders: u32, jpeg: u32, ofa: u32) -> Engines {
    Engines { copy, decoders, encoders: 0, jpeg, ofa }
}

/// What memory gives in GB/s by a bus of so many bits at so many MHz, with two transfers a cycle.
pub fn bandwidth(bits: u32, megahertz: u32) -> u32 {
    // Bits a microsecond; eight are a byte.
    u32::try_from(u64::from(bits) * u64::from(megahertz) / 4 / 1000).unwrap_or(u32::MAX)
}

/// True for `1g.10gb+me` and the like: a GPU has those engines once, whatever the slices.
pub fn has_media_extensions(profile: &str) -> bool {
    profile.ends_with("+me")
}

/// True when two partitions cannot exist at the same time: MIG's placement rules.
pub fn collide(one: (&str, Placement), other: (&str, Placement)) -> bool {
    let media = has_media_extensions(one.0) && has_media_extensions(other.0);
    one.1.overlaps(other.1) || media
}

// === impl Model ===

impl Model {
    /// The model with this key, in any case.
    pub fn by_key(key: &str) -> Option<&'static Model> {
        MODELS.iter().find(|model| model.key.eq_ignore_ascii_case(key))
    }

    /// The most that its memory gives, in GB/s.
    pub fn bandwidth(&self) -> u32 {
        bandwidth(self.bus.0, self.bus.1)
    }

    /// The profile with this name.
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

// === impl Profile ===

impl Profile {
    /// Compute slices of an instance: the number before `g`. A compute instance of as many fills it.
    pub fn slices(&self) -> u32 {
        self.name.split_once('g').and_then(|(slices, _)| slices.parse().ok()).unwrap_or(0)
    }

    /// Every place that an instance may take, lowest first.
    pub fn placements(&self) -> impl Iterator<Item = Placement> + use<'_> {
        let size = self.size;
        self.starts.iter().map(move |&start| Placement { start, size })
    }
}

// === impl Placement ===

impl Placement {
    /// True when both need a same memory slice.
    pub fn overlaps(self, other: Placement) -> bool {
        let end = |placement: Placement| u16::from(placement.start) + u16::from(placement.size);
        u16::from(self.start) < end(other) && u16::from(other.start) < end(self)
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.start, self.size)
    }
}

#[cfg(test)]
mod tests;
