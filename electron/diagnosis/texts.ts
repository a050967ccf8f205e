import type { FindingView } from "../contract/index.js";

/** The words of each class, in English; the page looks `findings.<class>` of its language up first. `{name}` is filled from params. */
export interface FindingText {
  title: string;
  explanation: string;
  checked: readonly string[];
  mend: FindingView["mend"];
}
type Risk = FindingView["mend"][number]["risk"];
const mend = (command: string, explanation: string, risk: Risk = "none"): FindingView["mend"][number] => ({ command, explanation, risk });

const rebuild = [
  mend("apt-get install linux-headers-$(uname -r)", "gives the headers of the kernel that runs; then bring the node up again"),
  mend("npm run bundle", "on the console's machine: builds the module for every kernel whose headers are there"),
];
const port = (title: string, explanation: string, ...steps: FindingView["mend"]): FindingText => ({ title, explanation, checked: ["state and phys_state in /sys/class/infiniband", "the card's other ports"], mend: steps });
const driverSays = (title: string, explanation: string, ...steps: FindingView["mend"]): FindingText => ({ title, explanation: `${explanation} The driver said: {text}`, checked: ["every line of the driver in the kernel log"], mend: steps });
const MEMLOCK = mend("systemctl edit stepccld  # [Service] LimitMEMLOCK=infinity", "lifts the limit of the daemon and of the ranks that it starts", "restarts_service");

export const FINDING_TEXTS: Record<string, FindingText> = {
  "module.vermagic_mismatch": {
    title: "{module} was built for another kernel",
    explanation: "The module says {found}, the kernel that runs wants {expected}, and refuses it.",
    checked: ["version magic in the kernel log"], mend: rebuild,
  },
  "module.wrong_kernel": {
    title: "{module} was built for another kernel",
    explanation: "The installed module is for {found}; the kernel that runs is {expected}. A kernel update without a rebuild leaves a node like this.",
    checked: ["modinfo of the module", "uname -r", "/proc/modules"], mend: rebuild,
  },
  "module.key_rejected": {
    title: "Secure Boot rejects the module's signature",
    explanation: "The kernel accepts only modules signed with an enrolled key, and {module} is not.",
    checked: ["the kernel log"],
    mend: [mend("mokutil --sb-state", "shows whether Secure Boot is on"), mend("mokutil --import /var/lib/dkms/mok.pub", "enrols the key at the next start, where a person confirms it", "interrupts_jobs")],
  },
  "module.lockdown_eperm": {
    title: "The kernel takes no unsigned module",
    explanation: "Lockdown or enforced signatures refuse the driver, for root too.",
    checked: ["the kernel log"], mend: [mend("cat /sys/kernel/security/lockdown", "shows the mode that is in force"), mend("mokutil --import /var/lib/dkms/mok.pub", "enrols the key that the module is signed with", "interrupts_jobs")],
  },
  "module.unknown_symbol": {
    title: "The driver needs a symbol that this kernel lacks", explanation: "{symbol} is not exported here: another kernel flavour, or a module that must be loaded first.", checked: ["the kernel log"], mend: rebuild,
  },
  "module.symbol_version_mismatch": {
    title: "The driver was built against other headers", explanation: "A symbol exists with another version than the module was built for.", checked: ["the kernel log"], mend: rebuild,
  },
  "driver.not_loaded": {
    title: "The driver is not loaded", explanation: "{module} is not among the loaded modules, and the kernel log names no reason.", checked: ["/proc/modules", "load errors in the kernel log"],
    mend: [mend("modprobe dma_engine", "loads it, if it is installed"), mend("dmesg | grep dma", "shows what it said")],
  },
  "dma.channel_unavailable": {
    title: "{path} is missing", explanation: "The module is loaded, but the device node is not there: udev did not make it, or it was removed.", checked: ["ls of the node", "/proc/modules"],
    mend: [mend("udevadm trigger --subsystem-match=misc --action=add", "has udev make the node again")],
  },
  "perm.dma_device_node": {
    title: "/dev/dma_device has the wrong mode or owner", explanation: "It is {mode} {owner}:{group}; it should be 0660 root:stepccl, so that ranks can open it and others cannot.", checked: ["ls of the node"],
    mend: [mend("udevadm control --reload && udevadm trigger --subsystem-match=misc --action=change", "applies the rule 70-stepccl.rules again"), mend("chgrp stepccl /dev/dma_device && chmod 0660 /dev/dma_device", "until the next start, where udev sets it again")],
  },
  "perm.user_not_in_group": {
    title: "{user} is not in group stepccl", explanation: "Without it this user reaches neither the daemon's socket nor the driver.", checked: ["id", "the group's list"],
    mend: [mend("usermod -aG stepccl {user}", "takes effect at the next login: reconnect the node after it")],
  },
  "driver.de003": driverSays("No DMA engine: copies run on the CPU", "The host has none that the driver can use. That is normal on machines without I/OAT or DSA."),
  "driver.de004": driverSays("The kernel has no DMA engine support", "Copies run on the CPU; cloud kernels are built this way.", mend("apt-get install linux-image-amd64", "installs the kernel with DMA engine support; it takes effect at the next start")),
  "driver.de005": driverSays("All DMA engines are held by others", "Another client of the kernel uses them.", mend("grep . /sys/class/dma/*/in_use", "shows who holds them")),
  "driver.de006": driverSays("DSA is there, but no kernel work queue is enabled", "The engine needs a work queue of type kernel with driver_name dmaengine.", mend("accel-config list -i", "shows devices and queues")),
  "driver.de101": driverSays("Not enough lockable memory", "A rank could not register its buffers.", MEMLOCK),
  "driver.de102": driverSays("A buffer could not be pinned", "Part of it is not mapped, read-only, or not ordinary memory: a fault of the program."),
  "driver.de103": driverSays("A device buffer could not be imported", "The exporter or the IOMMU refused."),
  "driver.de104": driverSays("A buffer could not be mapped for the engine", "The engine's address mask or the IOMMU is in the way.", mend("dmesg | grep -i -e DMAR -e AMD-Vi -e swiotlb", "shows what the IOMMU says")),
  "driver.de105": driverSays("A limit of the driver was reached", "A program holds more contexts, registrations or bytes than allowed.", mend("grep . /sys/module/dma_engine/parameters/*", "shows the limits")),
  "driver.de201": driverSays("A program sent a bad descriptor", "It was refused; nothing was copied."),
  "driver.de203": driverSays("A node is not in the driver's routing table", "The topology was not loaded, or the number is wrong."),
  "driver.de204": driverSays("A program corrupted its ring", "Its context was disabled; others are not touched."),
  "driver.de205": driverSays("Library and driver have different versions", "Bring the node up again to bring both to one release."),
  "driver.de301": driverSays("A DMA engine reported an error", "The transfer failed in hardware: look for lines of the engine and of the IOMMU beside it."),
  "driver.de302": driverSays("A DMA engine is stuck", "It was taken out of use; copies run on the CPU."),
  "driver.de303": driverSays("A DMA engine was removed in use", "Its provider was unbound; running copies were drained."),
  "driver.de304": driverSays("A copy was wrong", "The data that arrived differs from the source. Stop the job: results are not to be trusted."),
  "driver.de501": driverSays("Memory stays pinned behind a stuck engine", "It cannot be released safely; only a restart frees it.", mend("systemctl reboot", "frees the pages", "interrupts_jobs")),
  "agent.not_installed": { title: "The daemon is not installed", explanation: "systemd knows no stepccld.service here.", checked: ["systemctl show stepccld.service"], mend: [] },
  "agent.crashed": {
    title: "The daemon ended with an error", explanation: "systemd says {result} (status {status}).", checked: ["systemctl show stepccld.service", "its journal"],
    mend: [mend("systemctl restart stepccld.service", "starts it again; runs on this node end", "interrupts_jobs"), mend("journalctl -u stepccld.service -n 50", "shows its last words")],
  },
  "agent.not_running": {
    title: "The daemon is not running", explanation: "stepccld.service is {state}: it was stopped and not started again.", checked: ["systemctl show stepccld.service"],
    mend: [mend("systemctl start stepccld.service", "starts it", "restarts_service")],
  },
  "agent.restarted": {
    title: "The daemon was restarted {restarts} times", explanation: "It runs now, but systemd had to start it again since it was loaded.", checked: ["NRestarts of the unit"],
    mend: [mend("journalctl -u stepccld.service -n 200", "shows why it ended")],
  },
  "host.memlock_service": {
    title: "The daemon's limit of locked memory is too small", explanation: "Ranks get {limitBytes} bytes; RDMA and the driver need to lock their buffers, {neededBytes} bytes at the least. systemd ignores limits.conf.",
    checked: ["/proc/PID/limits of the daemon"], mend: [MEMLOCK],
  },
  "host.disk_full": {
    title: "{path} is nearly full", explanation: "{usedPercent} % used, {freeBytes} bytes free. Upgrades, logs and the cluster's state need room.", checked: ["df"],
    mend: [mend("du -xh --max-depth=2 {path} | sort -h | tail -20", "shows what takes the room"), mend("journalctl --vacuum-size=100M", "frees old journals")],
  },
  "host.shm_small": {
    title: "/dev/shm has no room", explanation: "{freeBytes} bytes are free; ranks of one node exchange data through it.", checked: ["df of /dev/shm"],
    mend: [mend("ls -la /dev/shm", "shows what lies there"), mend("mount -o remount,size=50% /dev/shm", "makes it larger")],
  },
  "perm.node_absent_module": {
    title: "The RDMA stack is not loaded", explanation: "There is no RDMA device and ib_uverbs is not loaded. Collectives run over TCP alone.", checked: ["/sys/class/infiniband", "/proc/modules"],
    mend: [mend("modprobe -a ib_uverbs rdma_ucm", "loads the stack"), mend("lspci -nn | grep -i -e mellanox -e infiniband", "shows whether a card is there")],
  },
  "rdma.device_missing": {
    title: "No RDMA device", explanation: "The verbs stack is loaded, but no device is there. Collectives run over TCP alone.", checked: ["/sys/class/infiniband", "/proc/modules"],
    mend: [mend("rdma link show", "lists the devices"), mend("rdma link add rxe0 type rxe netdev DEVICE", "makes a Soft-RoCE device on a network card without RDMA")],
  },
  "link.down_polling": port("{device} port {port} gets no signal", "It is {state}, physically {physState}: no cable, a dead peer, or a speed that does not fit.", mend("ethtool {netdev}", "shows the link as the driver sees it")),
  "link.disabled": port("{device} port {port} is down", "It is {state}, physically {physState}: its network device is down, or the port is switched off.", mend("ip link set {netdev} up", "brings the device up")),
  "link.unused_port_down": port("{device} port {port} is not in use", "Another port of the card is active; this one is most likely a spare."),
  "link.init_no_sm": port("{device} port {port} waits for a subnet manager", "The cable is good, but nobody has configured the port.", mend("sminfo", "looks for the subnet manager"), mend("systemctl enable --now opensm", "on one node of a fabric that has none", "restarts_service")),
  "link.not_active": port("{device} port {port} is not active", "It is {state}, physically {physState}.", mend("ip link set {netdev} up", "brings its network device up")),
  "roce.gid_missing": {
    title: "{device} port {port} has no RoCE v2 address", explanation: "Its table has no RoCE v2 entry for an IPv4 address, so no peer can reach it.", checked: ["gids and their types in /sys/class/infiniband"],
    mend: [mend("ip addr show dev {netdev}", "shows whether the device has an address"), mend("ip link set {netdev} up", "the table fills when the device is up and has an address")],
  },
  "iommu.dmar_fault": {
    title: "The IOMMU refuses memory accesses of {device}", explanation: "Address {address}, reason {reason}: the device used memory that is not mapped for it, or not for that direction.", checked: ["every DMAR line of the kernel log", "the time of the lines"],
    mend: [mend("lspci -k -s {device}", "shows which device it is and its driver"), mend("dmesg | grep -i dmar", "shows all of them")],
  },
  "iommu.dmar_boot_transient": { title: "IOMMU faults of the display during start-up", explanation: "All within the first seconds, of {device} alone, and none since: harmless.", checked: ["the time of the lines", "the device"], mend: [] },
  "link.mtu_mismatch": {
    title: "{netdev} has another MTU than the others", explanation: "{mtu} here, {usual} on the other nodes: small messages pass, large ones hang or fail.", checked: ["ip link of all nodes of this diagnosis"],
    mend: [mend("ip link set {netdev} mtu {usual}", "until the next start; set it in the network's configuration too", "interrupts_jobs")],
  },
  "host.clock_skew": {
    title: "The clock is {seconds} s away from the others", explanation: "Compared with the middle of the nodes that were read together. Certificates and the order of log lines depend on it.", checked: ["date on all nodes of this diagnosis, with the time that the answer took"],
    mend: [mend("timedatectl", "shows whether the clock is kept"), mend("chronyc makestep", "sets it at once, where chrony runs")],
  },
};
