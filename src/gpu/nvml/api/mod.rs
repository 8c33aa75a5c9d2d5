//! The C calls of NVML, each as one safe method of a [`Caller`].
//!
//! The one place of the node side with unsafe code. What makes the calls sound: the library is kept
//! open as long as anything calls it; handles are NVML's own and it checks them; every buffer is
//! ours and as long as we say; NVML may be called from any thread at any time.
#![allow(unsafe_code, reason = "NVML is a C library")]

mod device;
mod health;
mod mig;

use std::{
    convert::Infallible,
    ffi::{CStr, CString, c_char, c_uint},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
};

use nvml_wrapper_sys::bindings::{self as sys, NvmlLib};

pub(super) use health::{EventSet, Told};
pub(super) use mig::{ComputeInstance, Instance, ProfileInfo};

/// An opened and initialized libnvidia-ml; shut down when nobody can be calling it any more.
pub(super) struct Api {
    lib: NvmlLib,
    /// Dropped after the shutdown.
    _open: Sender<Infallible>,
}

/// Disconnected when the library has been shut down.
pub(super) type Shut = Receiver<Infallible>;

/// Whoever calls: each thread has its own, and others can see what it is waiting for.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    api: Arc<Api>,
    now: Now,
}

/// What a thread is at.
#[derive(Debug, Clone, Default)]
pub(super) struct Now(Arc<Mutex<Doing>>);

#[derive(Debug, Default)]
struct Doing {
    /// The call that it is in, or was last.
    call: &'static str,
    /// Somebody has waited for this job, or behind it, in vain.
    late: bool,
}

/// A GPU or MIG device, by NVML's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Device(sys::nvmlDevice_t);

/// A call that NVML refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    /// The call.
    pub(super) call: &'static str,
    /// NVML's code.
    pub(super) code: u32,
    /// NVML's words for it.
    pub(super) text: String,
}

// SAFETY: NVML is thread-safe (its reference manual, "it is safe to make simultaneous NVML calls from
// multiple threads"), and NvmlLib is a table of function pointers.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}
// SAFETY: a handle is NVML's name for a device in this process, not memory of a thread.
unsafe impl Send for Device {}

// === impl Api ===

impl Api {
    /// Opens the library and begins a session.
    pub(super) fn open(library: &Path, now: &Now) -> Result<(Caller, Shut), OpenError> {
        now.set("dlopen");
        // SAFETY: it runs the library's initializers: it is the driver's own, which root installed.
        let lib = unsafe { NvmlLib::new(library) }.map_err(OpenError::Load)?;
        let now = now.clone();
        now.set("nvmlInitWithFlags");
        // A machine whose GPUs are all gone has a driver still: that is no failure of the library.
        let flags = NO_GPUS_IS_FINE;
        let begun = match &lib.nvmlInitWithFlags {
            // SAFETY: takes a number, and touches nothing of ours.
            Ok(init) => unsafe { init(flags) },
            Err(_) => sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
        };
        if begun != sys::nvmlReturn_enum_NVML_SUCCESS {
            return Err(OpenError::Init(failed(&lib, "nvmlInitWithFlags", begun)));
        }
        let (open, shut) = mpsc::channel();
        Ok((Caller { api: Arc::new(Self { lib, _open: open }), now }, shut))
    }
}

/// `NVML_INIT_FLAG_NO_GPUS`
const NO_GPUS_IS_FINE: c_uint = 1;

/// Why there is no session.
#[derive(Debug)]
pub(super) enum OpenError {
    /// The file is no library that can be loaded.
    Load(libloading::Error),
    /// It does not begin.
    Init(Failed),
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Ok(shutdown) = &self.lib.nvmlShutdown {
            // SAFETY: every thread that may call holds an Arc of this, so none is in a call.
            let _ended = unsafe { shutdown() };
        }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Api")
    }
}

// === impl Caller ===

impl Caller {
    /// The same library for another thread.
    pub(super) fn another(&self) -> Self {
        Self { api: Arc::clone(&self.api), now: Now::default() }
    }

    /// What this thread is waiting for.
    pub(super) fn now(&self) -> &Now {
        &self.now
    }

    /// The driver's version.
    pub(super) fn driver_version(&self) -> Result<String, Failed> {
        self.text("nvmlSystemGetDriverVersion", |buffer, length| {
            let call = self.api.lib.nvmlSystemGetDriverVersion.as_ref();
            // SAFETY: a buffer of `length` bytes.
            call.map(|call| unsafe { call(buffer, length) })
        })
    }

    /// The newest CUDA that the driver runs: major, minor.
    pub(super) fn cuda_version(&self) -> Result<(u32, u32), Failed> {
        let version: i32 = self.value("nvmlSystemGetCudaDriverVersion_v2", |place| {
            let call = self.api.lib.nvmlSystemGetCudaDriverVersion_v2.as_ref();
            // SAFETY: an int to write.
            call.map(|call| unsafe { call(place) })
        })?;
        // NVML_CUDA_DRIVER_VERSION_MAJOR: thousands, and MINOR: tens.
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// How many GPUs NVML sees.
    pub(super) fn count(&self) -> Result<u32, Failed> {
        self.value("nvmlDeviceGetCount_v2", |place| {
            let call = self.api.lib.nvmlDeviceGetCount_v2.as_ref();
            // SAFETY: an int to write.
            call.map(|call| unsafe { call(place) })
        })
    }

    /// The GPU that NVML counts so; an index is stable while the driver is loaded, no longer.
    pub(super) fn by_index(&self, index: u32) -> Result<Device, Failed> {
        self.device("nvmlDeviceGetHandleByIndex_v2", |place| {
            let call = self.api.lib.nvmlDeviceGetHandleByIndex_v2.as_ref();
            // SAFETY: a handle to write.
            call.map(|call| unsafe { call(index, place) })
        })
    }

    /// The GPU that sits there. May attach it, which takes seconds without persistence mode.
    pub(super) fn by_pci(&self, address: &str) -> Result<Device, Failed> {
        let text = CString::new(address).unwrap_or_default();
        self.device("nvmlDeviceGetHandleByPciBusId_v2", |place| {
            let call = self.api.lib.nvmlDeviceGetHandleByPciBusId_v2.as_ref();
            // SAFETY: a C string to read and a handle to write.
            call.map(|call| unsafe { call(text.as_ptr(), place) })
        })
    }

    fn device<E>(
        &self,
        name: &'static str,
        call: impl FnOnce(*mut sys::nvmlDevice_t) -> Result<sys::nvmlReturn_t, E>,
    ) -> Result<Device, Failed> {
        let mut handle = std::ptr::null_mut();
        self.call(name, || call(&raw mut handle))?;
        Ok(Device(handle))
    }

    /// A call that writes one plain value.
    fn value<T: Default, E>(
        &self,
        name: &'static str,
        call: impl FnOnce(*mut T) -> Result<sys::nvmlReturn_t, E>,
    ) -> Result<T, Failed> {
        let mut value = T::default();
        self.call(name, || call(&raw mut value))?;
        Ok(value)
    }

    /// A call that writes a text.
    fn text<E>(
        &self,
        name: &'static str,
        call: impl FnOnce(*mut c_char, c_uint) -> Result<sys::nvmlReturn_t, E>,
    ) -> Result<String, Failed> {
        // NVML_DEVICE_NAME_V2_BUFFER_SIZE and NVML_DEVICE_UUID_V2_BUFFER_SIZE are 96, the longest.
        let mut buffer: [c_char; 96] = [0; 96];
        self.call(name, || call(buffer.as_mut_ptr(), 96))?;
        Ok(text(&buffer))
    }

    /// One call: its name is seen by others as long as it lasts, and its answer is judged.
    fn call<E>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> Result<sys::nvmlReturn_t, E>,
    ) -> Result<(), Failed> {
        self.now.set(name);
        let code = call().unwrap_or(sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
        match code {
            sys::nvmlReturn_enum_NVML_SUCCESS => Ok(()),
            code => Err(failed(&self.api.lib, name, code)),
        }
    }
}

fn failed(lib: &NvmlLib, call: &'static str, code: u32) -> Failed {
    let words = lib.nvmlErrorString.as_ref().ok().and_then(|words| {
        // SAFETY: takes a number.
        let words = unsafe { words(code) };
        // SAFETY: not null, so NVML's own constant C string.
        (!words.is_null()).then(|| unsafe { CStr::from_ptr(words) })
    });
    let text = words.map(|words| words.to_string_lossy().into_owned()).unwrap_or_default();
    Failed { call, code, text }
}

/// The text of a C struct's field, up to its zero.
fn text(field: &[c_char]) -> String {
    let bytes = field.iter().map(|byte| byte.cast_unsigned());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The version that NVML wants in the first field of a struct: its size, and which one it is.
fn version<T>(number: u32) -> c_uint {
    u32::try_from(size_of::<T>()).unwrap_or(0) | number << 24
}

// === impl Now ===

impl Now {
    /// The call that it is in, or was last.
    pub(super) fn call(&self) -> &'static str {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call
    }

    /// True when somebody has waited in vain, and it has not come back since.
    pub(super) fn is_late(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).late
    }

    /// Somebody waits no longer; or it came back.
    pub(super) fn late(&self, late: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).late = late;
    }

    fn set(&self, call: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call = call;
    }
}

// === impl Failed ===

impl Failed {
    /// True when NVML gave this code.
    pub(super) fn is(&self, code: u32) -> bool {
        self.code == code
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, text } = self;
        match text.is_empty() {
            true => write!(f, "{call} answered {code}"),
            false => write!(f, "{call} answered {code}, {text}"),
        }
    }
}
