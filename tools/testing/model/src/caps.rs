// SPDX-License-Identifier: GPL-2.0

//! Capability pages, read by QUERY_HCA_CAP and changed by SET_HCA_CAP.
//!
//! Every page has 4096 bytes as they are now (CUR) and as they may become at most (MAX). The
//! device has a page exactly when the general page says so, since drivers decide by that bit.
//! What a page says is what the model does: an object that it cannot create has a limit of 0.

use crate::field;
use crate::identity::Identity;
use crate::identity::PortType;
use crate::ifc;
use crate::ifc::Bits;
use crate::ifc::Layout;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// Kind of a page.
#[derive(Debug)]
pub struct Kind {
    /// Name on the control socket.
    pub name: &'static str,
    /// `op_mod >> 1` of QUERY_HCA_CAP (hardware.md section 2.3).
    pub number: u16,
    /// Structure in `mlx5_ifc.h`, if it has one.
    pub layout: Option<&'static str>,
    /// Fields of the general page that say that this page is there; any of them does.
    advertised_by: &'static [&'static str],
    /// Fields that SET_HCA_CAP may change; `*` is all of them.
    writable: &'static [&'static str],
}

/// Fields of the general page that upstream's `handle_hca_cap` sets: the others are read-only.
const GENERAL_WRITABLE: &[&str] = &[
    "pkey_table_size",
    "log_max_qp",
    "cmdif_checksum",
    "uar_4k",
    "log_uar_page_sz",
    "cache_line_128byte",
    "dct",
    "pci_sync_for_fw_update_event",
    "pci_sync_for_fw_update_with_driver_unload",
    "pcie_reset_using_hotreset_method",
    "num_vhca_ports",
    "release_all_pages",
    "icm_mng_function_id_mode",
    "mkey_by_name",
    "vhca_state",
    "event_on_vhca_state_teardown_request",
    "event_on_vhca_state_in_use",
    "event_on_vhca_state_active",
    "event_on_vhca_state_allocated",
    "event_on_vhca_state_invalid",
    "num_total_dynamic_vf_msix",
    "roce",
    "log_max_current_uc_list",
    "abs_native_port_num",
];

/// Pages of which a driver may leave read-only fields 0 in SET_HCA_CAP: upstream's
/// `handle_hca_cap_atomic` sends nothing but the field that it sets.
const SPARSE: &[&str] = &["atomic"];

macro_rules! kinds {
    ($($name:literal $number:literal $layout:expr, [$($by:literal)*], $writable:expr;)*) => {
        /// All pages that drivers know.
        pub const KINDS: &[Kind] = &[$(Kind {
            name: $name,
            number: $number,
            layout: $layout,
            advertised_by: &[$($by),*],
            writable: $writable,
        }),*];
    };
}

kinds! {
    "general" 0x00 Some("cmd_hca_cap"), [], GENERAL_WRITABLE;
    "ethernet" 0x01 Some("per_protocol_networking_offload_caps"), ["eth_net_offloads"], &[];
    "odp" 0x02 Some("odp_cap"), ["pg"], &["*"];
    "atomic" 0x03 Some("atomic_caps"), ["atomic"], &["atomic_req_8B_endianness_mode"];
    "roce" 0x04 Some("roce_cap"), ["roce"], &["sw_r_roce_src_udp_port", "qp_ooo_transmit_default"];
    "ipoib" 0x05 Some("per_protocol_networking_offload_caps"), ["ipoib_basic_offloads"], &[];
    "ipoib_enhanced" 0x06 Some("per_protocol_networking_offload_caps"), ["ipoib_enhanced_offloads"], &[];
    "flow_table" 0x07 Some("flow_table_nic_cap"), ["nic_flow_table" "ipoib_enhanced_offloads"], &[];
    "eswitch_flow_table" 0x08 Some("flow_table_eswitch_cap"), ["eswitch_manager"], &[];
    "eswitch" 0x09 Some("e_switch_cap"), ["eswitch_manager"], &[];
    "qos" 0x0c Some("qos_cap"), ["qos"], &[];
    "debug" 0x0d Some("debug_cap"), ["debug"], &[];
    "device_memory" 0x0f Some("device_mem_cap"), ["device_memory"], &[];
    "tls" 0x11 Some("tls_cap"), ["tls_tx" "tls_rx"], &[];
    "device_event" 0x14 Some("device_event_cap"), ["event_cap"], &[];
    "ipsec" 0x15 Some("ipsec_cap"), ["ipsec_offload"], &[];
    "crypto" 0x1a Some("crypto_cap"), ["crypto"], &[];
    "shampo" 0x1d Some("shampo_cap"), ["shampo"], &[];
    "psp" 0x1e Some("psp_cap"), ["psp"], &[];
    "general_2" 0x20 Some("cmd_hca_cap_2"), ["hca_cap_2"], &["sw_vhca_id_valid", "lag_per_mp_group"];
    "port_selection" 0x25 Some("port_selection_cap"), ["port_selection_cap"], &["port_select_flow_table_bypass"];
    "adv_virtualization" 0x26 Some("adv_virtualization_cap"), ["adv_virtualization"], &[];
    "adv_rdma" 0x28 Some("adv_rdma_cap"), ["adv_rdma"], &[];
    "tlp_emulation" 0x2a Some("tlp_dev_emu_capabilities"), ["tlp_device_emulation_manager"], &[];
}

impl Kind {
    fn layout(&self) -> Option<&'static Layout> {
        self.layout.and_then(ifc::layout)
    }
}

#[derive(Clone, Debug)]
struct Page {
    initial: Box<[u8; PAGE_SIZE]>,
    current: Box<[u8; PAGE_SIZE]>,
    maximum: Box<[u8; PAGE_SIZE]>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            initial: Box::new([0; PAGE_SIZE]),
            current: Box::new([0; PAGE_SIZE]),
            maximum: Box::new([0; PAGE_SIZE]),
        }
    }
}

/// Why SET_HCA_CAP is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such page, or it is not advertised.
    NoPage,
    /// The field is read-only.
    ReadOnly(String),
    /// The value is above the maximum.
    AboveMax(String),
}

/// All capability pages of a function.
#[derive(Clone, Debug)]
pub struct Caps {
    pages: Vec<Page>,
}

impl Caps {
    /// The capabilities of `identity`.
    pub fn new(identity: &Identity) -> Self {
        let mut caps = Self {
            pages: KINDS.iter().map(|_| Page::default()).collect(),
        };
        for (page, name, current, maximum) in defaults(identity) {
            caps.set_field(page, name, Some(current), Some(maximum))
                .expect("defaults name fields of the header and fit them");
        }
        caps
    }

    /// CUR of all pages as after power on; MAX stays.
    pub fn reset(&mut self) {
        for page in &mut self.pages {
            page.current = page.initial.clone();
        }
    }

    /// A field of the general page, as it is now.
    pub fn general(&self, bits: Bits) -> u64 {
        ifc::get(&self.pages[0].current[..], bits)
    }

    /// Whether the device has page `index` of [`KINDS`].
    fn has(&self, index: usize) -> bool {
        let kind = &KINDS[index];
        kind.advertised_by.is_empty()
            || kind.advertised_by.iter().any(|f| {
                ifc::try_locate("cmd_hca_cap", f)
                    .is_some_and(|b| ifc::get(&self.pages[0].maximum[..], b) != 0)
            })
    }

    fn index(&self, number: u16) -> Option<usize> {
        let index = KINDS.iter().position(|k| k.number == number)?;
        self.has(index).then_some(index)
    }

    /// The page that QUERY_HCA_CAP asks for; `None` if the device does not have it.
    pub fn query(&self, number: u16, current: bool) -> Option<&[u8; PAGE_SIZE]> {
        let page = &self.pages[self.index(number)?];
        Some(if current {
            &page.current
        } else {
            &page.maximum
        })
    }

    /// Carries out SET_HCA_CAP: all of `new` or nothing.
    ///
    /// # Errors
    ///
    /// When the page is not there, a read-only field changes, or a value is above its maximum.
    pub fn change(&mut self, number: u16, new: &[u8; PAGE_SIZE]) -> Result<(), Refusal> {
        let index = self.index(number).ok_or(Refusal::NoPage)?;
        let kind = &KINDS[index];
        let page = &mut self.pages[index];
        let layout = kind.layout();
        let mut known = 0;
        let mut changed = Vec::new();
        if let Some(layout) = layout {
            known = layout.bits as usize / 8;
            for leaf in ifc::leaves(layout) {
                let (old, wanted) = (
                    ifc::get(&page.current[..], leaf.bits),
                    ifc::get(new, leaf.bits),
                );
                if old == wanted {
                    continue;
                }
                let what = format!("{}.{}: {old:#x} to {wanted:#x}", kind.name, leaf.path);
                let writable =
                    !leaf.reserved && kind.writable.iter().any(|w| *w == "*" || *w == leaf.path);
                if !writable && wanted == 0 && SPARSE.contains(&kind.name) {
                    continue;
                }
                if !writable {
                    return Err(Refusal::ReadOnly(what));
                }
                let limit = ifc::get(&page.maximum[..], leaf.bits);
                if wanted > limit {
                    return Err(Refusal::AboveMax(format!("{what}, maximum {limit:#x}")));
                }
                changed.push(leaf.bits);
            }
        }
        if let Some(at) = (known..PAGE_SIZE).find(|at| page.current[*at] != new[*at]) {
            return Err(Refusal::ReadOnly(format!("{} byte {at:#x}", kind.name)));
        }
        for leaf in changed {
            ifc::set(&mut page.current[..], leaf, ifc::get(new, leaf));
        }
        Ok(())
    }

    /// Place of `field` of `page`, for the control socket.
    fn locate(page: &str, field: &str) -> Result<(usize, Bits), String> {
        let index = KINDS.iter().position(|k| k.name == page).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
            format!(
                "no capability page {page:?}; there are {}",
                names.join(", ")
            )
        })?;
        let structure = KINDS[index].layout.unwrap_or_default();
        let bits = ifc::try_locate(structure, field)
            .ok_or_else(|| format!("mlx5_ifc.h has no field {field:?} in {structure}"))?;
        if bits.width > 64 {
            return Err(format!(
                "{field} has {} bits, only 64 can be set",
                bits.width
            ));
        }
        Ok((index, bits))
    }

    /// CUR and MAX of a field.
    ///
    /// # Errors
    ///
    /// When there is no such page or field.
    pub fn field(&self, page: &str, field: &str) -> Result<(u64, u64), String> {
        let (index, bits) = Self::locate(page, field)?;
        let p = &self.pages[index];
        Ok((
            ifc::get(&p.current[..], bits),
            ifc::get(&p.maximum[..], bits),
        ))
    }

    /// Changes a field, also for the time after the next reset.
    ///
    /// # Errors
    ///
    /// When there is no such page or field, or a value does not fit.
    pub fn set_field(
        &mut self,
        page: &str,
        field: &str,
        current: Option<u64>,
        maximum: Option<u64>,
    ) -> Result<(), String> {
        let (index, bits) = Self::locate(page, field)?;
        let most = ifc::max_value(bits);
        if let Some(v) = [current, maximum].into_iter().flatten().find(|v| *v > most) {
            return Err(format!("{v:#x} does not fit {field}: at most {most:#x}"));
        }
        let p = &mut self.pages[index];
        if let Some(v) = current {
            ifc::set(&mut p.current[..], bits, v);
            ifc::set(&mut p.initial[..], bits, v);
        }
        if let Some(v) = maximum {
            ifc::set(&mut p.maximum[..], bits, v);
        }
        Ok(())
    }
}

/// (page, field, CUR, MAX) of everything that is not zero.
fn defaults(identity: &Identity) -> Vec<(&'static str, &'static str, u64, u64)> {
    let mut d = Vec::new();
    let mut both = |page, list: &[(&'static str, u64)]| {
        d.extend(list.iter().map(|(f, v)| (page, *f, *v, *v)));
    };
    both(
        "general",
        &[
            ("hca_cap_2", 1),
            ("dtor", 1),
            ("vhca_id", if identity.vf { 1 } else { 0 }),
            ("log_max_eq_sz", 18),
            ("log_max_eq", 6),
            ("max_num_eqs", 1 << 6),
            ("fast_teardown", 1),
            ("force_teardown", 1),
            ("pcam_reg", 1),
            ("mcam_reg", 1),
            ("qcam_reg", 1),
            ("port_type", u64::from(identity.port_type == PortType::Eth)),
            ("num_ports", 1),
            ("native_port_num", 1),
            ("atomic", 1),
            ("driver_version", 1),
            ("log_bf_reg_size", 9),
            ("log_max_transport_domain", 16),
            ("log_max_uctx", 8),
            // RAW_TX and INTERNAL_DEV_RES.
            ("uctx_cap", 0b11),
            ("log_max_pd", 16),
            ("log_max_mkey", 24),
            ("debug", 1),
            ("log_pg_sz", 12),
            ("uar_sz", 5),
            ("num_of_uars_per_page", 1),
            (
                "device_frequency_mhz",
                u64::from(crate::bar::initseg::TIMER_KHZ / 1000),
            ),
            (
                "device_frequency_khz",
                u64::from(crate::bar::initseg::TIMER_KHZ),
            ),
            ("sw_owner_id", 1),
            (
                "eth_net_offloads",
                u64::from(identity.port_type == PortType::Eth),
            ),
        ],
    );
    both("debug", &[("core_dump_general", 1)]);
    both(
        "atomic",
        &[("supported_atomic_req_8B_endianness_mode_1", 1)],
    );
    d.extend([
        // Off until the driver asks for it.
        ("general", "release_all_pages", 0, 1),
        ("general", "cache_line_128byte", 0, 1),
        ("general", "cmdif_checksum", 0, 3),
        // 0 is 128 entries; 5 is 4096.
        ("general", "pkey_table_size", 5, 5),
        ("atomic", "atomic_req_8B_endianness_mode", 0, 1),
        ("general_2", "sw_vhca_id_valid", 0, 1),
    ]);
    d
}

/// Place of `cmdif_checksum` in the general page.
pub const CMDIF_CHECKSUM: Bits = field!("cmd_hca_cap", "cmdif_checksum");

#[cfg(test)]
mod tests {
    use super::*;

    fn caps() -> Caps {
        Caps::new(&Identity::new("cx7", PortType::Ib, false).expect("cx7"))
    }

    #[test]
    fn layouts_and_writable_fields_exist() {
        for kind in KINDS {
            let name = kind.layout.expect("all pages have a structure");
            assert!(kind.layout().is_some(), "{name}");
            for f in kind.writable.iter().filter(|f| **f != "*") {
                assert!(ifc::try_locate(name, f).is_some(), "{name}.{f}");
            }
            for f in kind.advertised_by {
                assert!(ifc::try_locate("cmd_hca_cap", f).is_some(), "{f}");
            }
            assert!(ifc::layout(name).is_some_and(|l| l.bits as usize <= PAGE_SIZE * 8));
        }
    }

    #[test]
    fn no_current_value_is_above_its_maximum() {
        let c = caps();
        for (kind, page) in KINDS.iter().zip(&c.pages) {
            for leaf in ifc::leaves(kind.layout().expect("layout")) {
                let now = ifc::get(&page.current[..], leaf.bits);
                let max = ifc::get(&page.maximum[..], leaf.bits);
                assert!(now <= max, "{}.{}: {now} > {max}", kind.name, leaf.path);
            }
        }
    }

    #[test]
    fn set_checks_each_field() {
        let mut c = caps();
        let general = |c: &Caps| *c.query(0, true).expect("general");
        let mut new = general(&c);
        ifc::set(&mut new, field!("cmd_hca_cap", "pkey_table_size"), 0);
        ifc::set(&mut new, field!("cmd_hca_cap", "release_all_pages"), 1);
        assert_eq!(c.change(0, &new), Ok(()));
        assert_eq!(c.field("general", "release_all_pages"), Ok((1, 1)));

        ifc::set(&mut new, field!("cmd_hca_cap", "dct"), 1);
        assert!(matches!(c.change(0, &new), Err(Refusal::AboveMax(w)) if w.contains("dct")));
        let mut new = general(&c);
        ifc::set(&mut new, field!("cmd_hca_cap", "log_max_eq"), 1);
        assert!(matches!(c.change(0, &new), Err(Refusal::ReadOnly(w)) if w.contains("log_max_eq")));
        let mut new = general(&c);
        new[PAGE_SIZE - 1] = 1;
        assert!(matches!(c.change(0, &new), Err(Refusal::ReadOnly(_))));
        assert_eq!(c.change(2, &[0; PAGE_SIZE]), Err(Refusal::NoPage));
        c.reset();
        assert_eq!(c.field("general", "release_all_pages"), Ok((0, 1)));
    }

    #[test]
    fn pages_are_there_when_advertised() {
        let mut c = caps();
        assert!(c.query(3, true).is_some() && c.query(0x20, false).is_some());
        assert!(c.query(9, true).is_none() && c.query(0x7f, true).is_none());
        c.set_field("general", "eswitch_manager", Some(1), Some(1))
            .expect("a field");
        assert!(c.query(9, true).is_some() && c.query(8, true).is_some());
        assert!(c.set_field("general", "dct", Some(2), None).is_err());
        assert!(c
            .set_field("genera", "dct", Some(1), None)
            .expect_err("no page")
            .contains("atomic"));
        assert!(c.set_field("general", "dcx", Some(1), None).is_err());
    }
}
