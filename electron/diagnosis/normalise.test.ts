import { describe, expect, it } from "vitest";
import { normaliseLog } from "./normalise.js";

const MESSAGE = "mlx5_core 0000:3b:00.0: Detected insufficient power on the PCIe slot (25W).";

describe("normaliseLog", () => {
  it.each([
    ["uptime", "[   12.345678] ", 12.345678],
    ["uptime without a blank after it", "[12345678.9]", 12345678.9],
    ["wall time", "[Fri Mar  3 04:44:24 2023] ", null],
    ["relative", "[  +0.000844] ", null],
    ["syslog", "Apr 22 18:10:16 host kernel: ", null],
    ["syslog with uptime", "Apr 22 18:10:16 host kernel: [ 1234.567890] ", 1234.56789],
    ["kernel alone", "kernel: ", null],
    ["ISO with priority", "kern  :err   : 2025-01-25T10:34:54,859532+00:00 ", null],
    ["journal, short-iso", "2025-01-25T10:34:54+0000 host kernel: ", null],
    ["journal, short-monotonic", "[    5.123456] host kernel: ", 5.123456],
    ["raw kmsg", "6,3973,227996636,-;", 227.996636],
    ["mpirun", "[1,305]<stderr>: ", null],
    ["pasted with blanks", "\t   [   12.345678] ", 12.345678],
  ])("%s", (_name, prefix, uptimeS) => {
    expect(normaliseLog(`${prefix}${MESSAGE}`)).toEqual([{ number: 1, text: MESSAGE, raw: `${prefix.trimStart()}${MESSAGE}`, uptimeS }]);
  });
  it("takes colour, CRLF, trailing blanks and empty lines away and keeps line numbers", () => {
    const text = `\u001b[32m[   12.345678] \u001b[0m\u001b[33mmlx5_core\u001b[0m up  \r\n\r\n[0m[31mplain[0m\r\n`;
    expect(normaliseLog(text).map((line) => [line.number, line.text])).toEqual([[1, "mlx5_core up"], [3, "plain"]]);
  });
  it("opens rsyslog's escaped newlines", () => {
    expect(normaliseLog("Apr 22 18:10:16 host kernel: one#012two").map((line) => line.text)).toEqual(["one", "two"]);
  });
  it("bounds lines", () => {
    expect(normaliseLog("x".repeat(1_000_000))[0]?.text.length).toBe(2000);
    expect(normaliseLog("x\n".repeat(300_000)).length).toBe(100_000);
  });
});
