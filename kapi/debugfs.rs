// SPDX-License-Identifier: GPL-2.0

//! debugfs directories whose files may borrow from the device.
//!
//! C header: `include/linux/debugfs.h`. The `kernel` crate wants file data that live for ever; here
//! files are removed on drop, and `debugfs_remove` waits for calls under way, so that what the files
//! show need only outlive the files.

use kernel::{
    bindings,
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

type Show<'a> = dyn Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'a;
type Obey<'a> = dyn Fn(&str) -> Result + Send + Sync + 'a;

struct FileData<'a> {
    show: KBox<Show<'a>>,
    /// For a file that can be written.
    obey: Option<KBox<Obey<'a>>>,
}

/// A directory, removed on drop with what is left in it. Where debugfs is missing or full, files are
/// silently absent, as everywhere in the kernel: nothing depends on them.
pub(crate) struct Dir {
    dentry: *mut bindings::dentry,
    /// The directory that it is in, if that is one of ours: removed after it.
    parent: Option<Arc<Dir>>,
}

// SAFETY: A dentry may be used from any thread.
unsafe impl Send for Dir {}

// SAFETY: `&Dir` gives access only to calls that debugfs synchronizes.
unsafe impl Sync for Dir {}

impl Dir {
    /// Creates the directory `name` at the top of debugfs.
    pub(crate) fn new(name: &CStr) -> Self {
        Self::create(name, core::ptr::null_mut())
    }

    /// Creates the directory `name` in the directory `parent` at the top of debugfs.
    pub(crate) fn within(parent: &CStr, name: &CStr) -> Self {
        // SAFETY: A C string; null stands for the top. Gives a dentry with a reference, or null.
        let parent =
            unsafe { bindings::debugfs_lookup(parent.as_char_ptr(), core::ptr::null_mut()) };
        let dir = Self::create(name, parent);
        // SAFETY: The reference from the look-up; null is allowed.
        unsafe { bindings::dput(parent) };
        dir
    }

    fn create(name: &CStr, parent: *mut bindings::dentry) -> Self {
        // SAFETY: `name` is a C string, `parent` null or a directory in debugfs.
        let dentry = unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), parent) };
        Self {
            dentry,
            parent: None,
        }
    }

    /// Creates the directory `name` in this one.
    pub(crate) fn child(self: &Arc<Self>, name: &CStr) -> Self {
        // An error as parent makes another error.
        let mut child = Self::create(name, self.dentry);
        child.parent = Some(self.clone());
        child
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: The dentry is from `debugfs_create_dir` (errors are allowed). All `Files` in it are
        // gone: they hold a reference.
        unsafe { bindings::debugfs_remove(self.dentry) };
    }
}

/// Some files of a directory, removed on drop.
pub(crate) struct Files<'a> {
    // Each removed in the drop, before the data that it points to.
    files: KVec<(*mut bindings::dentry, KBox<FileData<'a>>)>,
    dir: Arc<Dir>,
}

// SAFETY: A dentry may be used from any thread, and the file data are `Send`.
unsafe impl Send for Files<'_> {}

// SAFETY: `&Files` gives no access to anything.
unsafe impl Sync for Files<'_> {}

impl<'a> Files<'a> {
    /// No files in `dir` yet.
    pub(crate) fn new(dir: Arc<Dir>) -> Self {
        Self {
            files: KVec::new(),
            dir,
        }
    }

    /// Adds a file that shows what `show` prints.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add<F>(&mut self, name: &CStr, show: F) -> Result
    where
        F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'a,
    {
        let show: KBox<Show<'a>> = KBox::new(show, GFP_KERNEL)?;
        self.create(name, FileData { show, obey: None })
    }

    /// The same for a file that can be written as well: `obey` gets what is written, one line or word,
    /// and may refuse it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add_control<F, G>(&mut self, name: &CStr, show: F, obey: G) -> Result
    where
        F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'a,
        G: Fn(&str) -> Result + Send + Sync + 'a,
    {
        let show: KBox<Show<'a>> = KBox::new(show, GFP_KERNEL)?;
        let obey: KBox<Obey<'a>> = KBox::new(obey, GFP_KERNEL)?;
        let obey = Some(obey);
        self.create(name, FileData { show, obey })
    }

    fn create(&mut self, name: &CStr, data: FileData<'a>) -> Result {
        let (mode, fops) = match data.obey {
            Some(_) => (0o600, &raw const CONTROL_FOPS.0),
            None => (0o400, &raw const FOPS.0),
        };
        let data = KBox::new(data, GFP_KERNEL)?;
        self.files.reserve(1, GFP_KERNEL)?;
        let ptr = core::ptr::from_ref(&*data).cast_mut().cast::<c_void>();
        // SAFETY: The dentry is the directory's (or an error, which the call takes as well); `ptr`
        // points to a `FileData` that is only freed after the file was removed; the operations are for
        // such data.
        let dentry = unsafe {
            bindings::debugfs_create_file_full(
                name.as_char_ptr(),
                mode,
                self.dir.dentry,
                ptr,
                core::ptr::null(),
                fops,
            )
        };
        // There is room.
        let _ = self.files.push_within_capacity((dentry, data));
        Ok(())
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for (dentry, _) in &self.files {
            // SAFETY: The dentry is from `debugfs_create_file_full` (errors are allowed), removed
            // once. Waits for running calls into the file; afterwards none starts.
            unsafe { bindings::debugfs_remove(*dentry) };
        }
    }
}

struct Fops(bindings::file_operations);

// SAFETY: Constant, only read.
unsafe impl Sync for Fops {}

const FOPS_BASE: bindings::file_operations = bindings::file_operations {
    owner: <crate::Mlx5Module as kernel::ModuleMetadata>::THIS_MODULE.as_ptr(),
    open: Some(open),
    read: Some(bindings::seq_read),
    llseek: Some(bindings::seq_lseek),
    release: Some(bindings::single_release),
    // SAFETY: All-zero is valid for what is left: null pointers and no flags.
    ..unsafe { core::mem::zeroed() }
};

static FOPS: Fops = Fops(FOPS_BASE);

/// The same for a file that can be written.
static CONTROL_FOPS: Fops = Fops(bindings::file_operations {
    write: Some(write),
    ..FOPS_BASE
});

/// # Safety
///
/// Only as `open` of a file that [`Files`] made.
unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: The inode is valid; its private pointer is the file's `FileData`.
    unsafe { bindings::single_open(file, Some(show), (*inode).i_private) }
}

/// # Safety
///
/// Only for `single_open`, with a pointer to `FileData` as private data.
unsafe extern "C" fn show(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    struct Print<'a>(&'a Show<'a>);
    impl fmt::Display for Print<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }
    // SAFETY: debugfs calls this only while the file exists, and `FileData` outlives the file.
    let data = unsafe { &*(*seq).private.cast::<FileData<'_>>() };
    // SAFETY: `seq` is valid and ours for this call.
    let seq = unsafe { SeqFile::from_raw(seq) };
    seq_print!(seq, "{}", Print(&*data.show));
    0
}

/// # Safety
///
/// Only as `write` of a file with [`CONTROL_FOPS`], which [`open`] has opened.
unsafe extern "C" fn write(
    file: *mut bindings::file,
    from: *const c_char,
    len: usize,
    _: *mut bindings::loff_t,
) -> isize {
    /// Longer than any word that means something.
    const MAX: usize = 64;

    let obey = || {
        if len > MAX {
            return Err(EINVAL);
        }
        let mut text = [0; MAX];
        let text = text.get_mut(..len).ok_or(EINVAL)?;
        let from = UserPtr::from_ptr(from.cast_mut().cast());
        UserSlice::new(from, len).reader().read_slice(text)?;
        let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
        // SAFETY: The file is open: its private data are the `seq_file` that `single_open` has made, with
        // the `FileData` as its own, which outlives the file.
        let data = unsafe {
            let seq = (*file).private_data.cast::<bindings::seq_file>();
            &*(*seq).private.cast::<FileData<'_>>()
        };
        data.obey.as_ref().ok_or(EINVAL)?(text.trim())?;
        Ok(())
    };
    match obey() {
        // At most `MAX`.
        Ok(()) => len as isize,
        Err(error) => error.to_errno() as isize,
    }
}
