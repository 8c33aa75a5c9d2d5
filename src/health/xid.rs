//! An XID is a number by which the driver reports an error. What it asks for is the "immediate action" of
//! NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for Ampere and newer),
//! with these exceptions:
//!
//! - 109 is a reset there; NVIDIA's device plugin and DRA driver ignore it, as they do 13, 31, 43, 45 and 68.
//!   The driver's recovery action decides.
//! - 48, 74 and 144 to 150 are workflows there: the first two end in a reset by their description; of the others
//!   NVML does not tell by which error they came about, and the driver's recovery action sums it up.
//! - 65 and 73 are unused there, and were errors of video engines before, as 68 is (the listing of driver 555).
//! - 142, 167 to 169: no action is there that a machine could take.

/// What an XID asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// Nothing: it says something, or is the application's doing, which ends for it.
    Nothing,
    /// What the driver says elsewhere: its recovery action, which is looked at then.
    Driver,
    /// A reset of the GPU.
    Reset,
    /// A restart of the machine.
    Reboot,
    /// Somebody who looks at the cables.
    Cables,
}

/// What an XID of the catalogue means, where it asks for something.
const MEANINGS: [(u64, Demand, &str); 32] = [
    (46, Demand::Reset, "the GPU stopped processing"),
    (48, Demand::Reset, "double bit ECC error"),
    (54, Demand::Cables, "auxiliary power is not connected"),
    (62, Demand::Reset, "internal micro-controller halt"),
    (64, Demand::Reset, "memory could not be replaced"),
    (74, Demand::Reset, "NVLink error"),
    (79, Demand::Reboot, "the GPU has fallen off the bus"),
    (95, Demand::Reset, "uncontained memory error"),
    (109, Demand::Driver, "context switch timeout"),
    (110, Demand::Reset, "security fault"),
    (119, Demand::Reset, "GSP RPC timeout"),
    (120, Demand::Reset, "GSP error"),
    (136, Demand::Reset, "NVLink training failed"),
    (140, Demand::Reset, "unrecovered ECC error"),
    (142, Demand::Driver, "video encoder error"),
    (143, Demand::Reset, "initialization error"),
    (144, Demand::Driver, "NVLink SAW error"),
    (145, Demand::Driver, "NVLink RLW error"),
    (146, Demand::Driver, "NVLink TLW error"),
    (147, Demand::Driver, "NVLink TREX error"),
    (148, Demand::Driver, "NVLink NVLPW_CTRL error"),
    (149, Demand::Driver, "NVLink NETIR error"),
    (150, Demand::Driver, "NVLink MSE error"),
    (151, Demand::Reboot, "key rotation error"),
    (154, Demand::Driver, "the recovery action changed"),
    (155, Demand::Reset, "NVLink error defined by software"),
    (156, Demand::Reset, "a part was taken out of use"),
    (158, Demand::Reset, "fatal timeout"),
    (159, Demand::Driver, "CHI error"),
    (167, Demand::Driver, "PCIe fatal timeout"),
    (168, Demand::Driver, "less memory"),
    (169, Demand::Driver, "SEC2 halt"),
];

/// Those that ask for nothing: of the application, or of what is repaired already. From, to.
const NOTHING: [(u64, u64); 25] = [
    (8, 8),
    (11, 11),
    (13, 14),
    (25, 25),
    (31, 32),
    (37, 41),
    // Sympathetic: another comes first.
    (43, 45),
    (60, 60),
    // Memory was replaced: what waits for a reset is polled.
    (63, 63),
    (65, 73),
    (75, 78),
    (80, 80),
    (82, 86),
    (88, 89),
    (92, 94),
    (96, 108),
    (121, 121),
    (126, 135),
    (137, 137),
    (139, 139),
    (141, 141),
    (152, 153),
    (157, 157),
    (160, 166),
    (170, 172),
];

/// What an XID asks for. One that the catalogue does not have asks for a reset: nobody says that it is
/// harmless.
pub fn demand(xid: u64) -> Demand {
    if let Some((_, demand, _)) = MEANINGS.iter().find(|(number, ..)| *number == xid) {
        return *demand;
    }
    match NOTHING.iter().any(|(from, to)| (*from..=*to).contains(&xid)) {
        true => Demand::Nothing,
        false => Demand::Reset,
    }
}

/// What an XID means, in words, where it asks for something and the catalogue has it.
pub fn meaning(xid: u64) -> Option<&'static str> {
    MEANINGS.iter().find(|(number, ..)| *number == xid).map(|(_, _, meaning)| *meaning)
}
