import type { Carrier } from "../../electron/contract/index.js";
import { WsCarrier } from "./ws-carrier.js";

/** The carrier of this shell: the desktop's preload where there is one, else the WebSocket of the host that served the page. */
export function connect(window: Window): Carrier & { reconnectNow?: () => void } {
  if (window.stepccl) return window.stepccl;
  const { protocol, host } = window.location;
  return new WsCarrier({ url: `${protocol === "https:" ? "wss:" : "ws:"}//${host}/ws` });
}
