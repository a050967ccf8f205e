/// <reference types="vite/client" />
import type { Carrier } from "../electron/contract/index.js";

declare global {
  interface Window {
    /** The desktop's preload gives a carrier here; absent in a browser. */
    stepccl?: Carrier;
  }
}
