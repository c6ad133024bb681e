// The types of what `preact.js` exports, see `../vendor.toml`. Written by hand: those of the packages
// fill 150 kB, most of it for JSX, which the dashboard does not use.

export type Child = VNode | string | number | bigint | boolean | null | undefined | Signal<any> | Child[];
export type Component<P = any> = (props: P) => Child;
export interface VNode<P = any> {
  type: string | Component<P>;
  props: P & { children?: Child };
  key: any;
}
export interface Context<T> {
  Provider: Component<{ value: T; children?: Child }>;
}

export function h(type: string | Component, props: object | null, ...children: Child[]): VNode;
export const Fragment: Component<{ children?: Child }>;
export function render(node: Child, parent: Element | DocumentFragment): void;
export function createContext<T>(value: T): Context<T>;
export function html(strings: TemplateStringsArray, ...values: any[]): VNode;

type Inputs = readonly unknown[];
type Cleanup = void | (() => void);
export interface Ref<T> {
  current: T;
}
export function useState<T>(initial: T | (() => T)): [T, (value: T | ((previous: T) => T)) => void];
export function useState<T = undefined>(): [T | undefined, (value: T | undefined | ((previous: T | undefined) => T | undefined)) => void];
export function useEffect(effect: () => Cleanup, inputs?: Inputs): void;
export function useLayoutEffect(effect: () => Cleanup, inputs?: Inputs): void;
export function useRef<T>(initial: T): Ref<T>;
export function useRef<T>(initial: T | null): Ref<T | null>;
export function useRef<T = undefined>(): Ref<T | undefined>;
export function useMemo<T>(make: () => T, inputs: Inputs): T;
export function useCallback<F extends (...args: any[]) => any>(callback: F, inputs: Inputs): F;
export function useContext<T>(context: Context<T>): T;
export function useId(): string;
export function useErrorBoundary(callback?: (error: any) => void): [any, () => void];

export interface ReadonlySignal<T = any> {
  readonly value: T;
  peek(): T;
  subscribe(listener: (value: T) => void): () => void;
}
export interface Signal<T = any> extends ReadonlySignal<T> {
  value: T;
}
export function signal<T>(value: T): Signal<T>;
export function signal<T = undefined>(): Signal<T | undefined>;
export function computed<T>(compute: () => T): ReadonlySignal<T>;
export function effect(run: () => Cleanup): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
export function useSignal<T>(value: T): Signal<T>;
export function useSignal<T = undefined>(): Signal<T | undefined>;
export function useComputed<T>(compute: () => T): ReadonlySignal<T>;
export function useSignalEffect(run: () => Cleanup): void;
