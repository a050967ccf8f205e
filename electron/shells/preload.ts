import { contextBridge, ipcRenderer, type IpcRendererEvent } from "electron";
import type { Carrier, ClientMessage, HostMessage } from "../contract/index.js";
import { CHANNEL } from "./desktop-channel.js";

/**
 * The desktop's carrier: named functions alone, plain data both ways, no event object for the page. The native file dialog is
 * the one thing beside it that a page cannot do by itself.
 */
const carrier: Carrier = {
  send: (message: ClientMessage) => ipcRenderer.send(CHANNEL.toHost, JSON.stringify(message)),
  onMessage: (listener: (message: HostMessage) => void) => {
    const own = (_event: IpcRendererEvent, text: string): void => listener(JSON.parse(text) as HostMessage);
    ipcRenderer.on(CHANNEL.toPage, own);
    return () => void ipcRenderer.off(CHANNEL.toPage, own);
  },
  onState: (listener) => {
    listener("open");
    return () => {};
  },
  close: () => {},
  chooseFile: () => ipcRenderer.invoke(CHANNEL.chooseFile) as Promise<string | null>,
};
contextBridge.exposeInMainWorld("stepccl", carrier);
