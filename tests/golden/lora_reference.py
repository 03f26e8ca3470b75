"""One training step of LoRA in numpy, cut over the ranks of a tensor axis as ripstop cuts it; no framework, no tape.

make_lora.py compares it with peft. It is written from the formulas, in ripstop's order of rows (a head turns neighbours
by one angle), and each collective is one function, so that it also proves which gradients are sums over ranks. For a
matrix W [O, I] with an adapter A [r, I], B [O, r], m the mask of dropout p, s = alpha / r or alpha / sqrt(r):

  y = x W^T + s / (1 - p) ((m x) A^T) B^T

Column-parallel (W and B cut by rows, x [n, I] this rank's rows):
  forward    U [n, r] = s / (1 - p) (m x) A^T, gathered; y [N, O / t] = gathered x W^T + U B^T
  backward   dB = dy^T U; dU [n, r] = s / (1 - p) reduce-scatter(dy B); dA = dU^T (m x), a part of the sum over ranks;
             dx [n, I] = reduce-scatter(dy W) + m (dU A)
Row-parallel (W and A cut by columns, x [N, I / t]):
  forward    U [N, r] = s / (1 - p) (m x) A^T, a part of the sum; y [n, O] = reduce-scatter(x W^T + U B^T)
  backward   dy gathered; dB = dy^T U, a part of the sum; dU [N, r] = s / (1 - p) dy B; dA = dU^T (m x);
             dx = dy W + m (dU A)
"""
import numpy as np

COLUMN = {"wq": "attention", "wk": "attention", "wv": "attention", "w1": "feed_forward", "w3": "feed_forward"}
ROW = {"wo": "attention", "w2": "feed_forward"}


def gather(parts):
    """All ranks' rows, on every rank."""
    return np.concatenate(parts)


def scatter_sum(parts):
    """To each rank its rows of the sum."""
    return np.split(sum(parts), len(parts))


class Model:
    """Weights in ripstop's names and order. adapters: name of a matrix -> (A, B); masks: name -> [N, I] of 0 and 1."""

    def __init__(self, sizes, weights, adapters, masks, scale, ranks):
        self.__dict__.update(sizes)
        self.weights, self.adapters, self.masks, self.factor, self.ranks = weights, adapters, masks, scale, ranks
        self.gradients = {}

    # The parts of whole arrays that the ranks hold.
    def cut_rows(self, name):
        return np.split(self.weights[name], self.ranks, 0)

    def cut_columns(self, name):
        return np.split(self.weights[name], self.ranks, 1)

    def add(self, name, a, b):
        self.gradients[name] = (a, b)

    # ---- column-parallel: the matrices `names` read one input
    def column_forward(self, x, names):
        ranks, inputs, us = range(self.ranks), gather(x), {}
        ys = []
        for name in names:
            y = [inputs @ w.T for w in self.cut_rows(name)]
            if name in self.adapters:
                a, b = self.adapters[name]
                mask = np.split(self.masks[name], self.ranks)
                u = gather([self.factor * ((mask[k] * x[k]) @ a.T) for k in ranks])
                y = [y[k] + u @ np.split(b, self.ranks)[k].T for k in ranks]
                us[name] = u
            ys.append(y)
        return ys, us

    def column_backward(self, x, names, dys, us, needs_input=True):
        ranks = range(self.ranks)
        dx = scatter_sum([sum(dy[k] @ self.cut_rows(name)[k] for name, dy in zip(names, dys)) for k in ranks])
        for name, dy in zip(names, dys):
            if name not in self.adapters:
                continue
            a, b = self.adapters[name]
            mask = np.split(self.masks[name], self.ranks)
            du = scatter_sum([dy[k] @ np.split(b, self.ranks)[k] for k in ranks])
            du = [self.factor * part for part in du]
            db = np.concatenate([dy[k].T @ us[name] for k in ranks])  # each rank has its rows
            da = sum(du[k].T @ (mask[k] * x[k]) for k in ranks)  # replicated: a sum over the axis
            self.add(name, da, db)
            dx = [dx[k] + mask[k] * (du[k] @ a) for k in ranks]
        return dx if needs_input else None

    # ---- row-parallel
    def row_forward(self, x, name):
        ys = [x[k] @ self.cut_columns(name)[k].T for k in range(self.ranks)]
        us = None
        if name in self.adapters:
            a, b = self.adapters[name]
            masks = np.split(self.masks[name], self.ranks, 1)
            us = [self.factor * ((masks[k] * x[k]) @ np.split(a, self.ranks, 1)[k].T) for k in range(self.ranks)]
            ys = [ys[k] + us[k] @ b.T for k in range(self.ranks)]
        return scatter_sum(ys), us

    def row_backward(self, x, name, dy, us):
        ranks, dy = range(self.ranks), gather(dy)
        dx = [dy @ w for w in self.cut_columns(name)]
        if name in self.adapters:
            a, b = self.adapters[name]
            a, masks = np.split(a, self.ranks, 1), np.split(self.masks[name], self.ranks, 1)
            du = self.factor * (dy @ b)
            db = sum(dy.T @ us[k] for k in ranks)  # replicated: a sum over the axis
            da = np.concatenate([du.T @ (masks[k] * x[k]) for k in ranks], axis=1)  # each rank has its columns
            self.add(name, da, db)
            dx = [dx[k] + masks[k] * (du @ a[k]) for k in ranks]
        return dx

    # ---- what has no adapter
    def norm(self, x, name):
        inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * inverse * self.weights[name], inverse

    def norm_backward(self, dy, x, inverse, name):
        g = dy * self.weights[name]
        return inverse * g - x * inverse**3 * (g * x).mean(-1, keepdims=True)

    def turn(self, x, position, direction):
        """x [N, heads, D]: elements 2 i and 2 i + 1 of a head turn by position theta^(-2 i / D)."""
        angle = position[:, None] * self.theta ** (-np.arange(0, self.head, 2) / self.head)
        cos, sin = np.cos(angle)[:, None], direction * np.sin(angle)[:, None]
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    def attend(self, q, k, v, allowed):
        """One rank's heads. q [N, H, D], k, v [N, K, D]; allowed [N, N]."""
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head)
        scores = np.where(allowed, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", p, v), p

    def attend_backward(self, do, q, k, v, p):
        heads, group = k.shape[1], q.shape[1] // k.shape[1]
        wide_k, wide_v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        dv = np.einsum("hqk,qhd->khd", p, do)
        dp = np.einsum("qhd,khd->hqk", do, wide_v)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / np.sqrt(self.head)
        dq = np.einsum("hqk,khd->qhd", ds, wide_k)
        dk = np.einsum("hqk,qhd->khd", ds, q)
        together = lambda x: x.reshape(x.shape[0], heads, group, self.head).sum(2)
        return dq, together(dk), together(dv)

    # ---- the layers
    def attention(self, at, x, position, allowed):
        """x: each rank's rows of the sum. Returns each rank's rows of the branch, and the backward of it."""
        names = [f"{at}.attention.{w}" for w in ("wq", "wk", "wv")]
        normed = [self.norm(rows, f"{at}.attention_norm") for rows in x]
        inputs = [n for n, _ in normed]
        projected, us = self.column_forward(inputs, names)
        heads = [[y.reshape(len(y), -1, self.head) for y in part] for part in projected]
        q, k = ([self.turn(y, position, 1) for y in part] for part in heads[:2])
        v = heads[2]
        found = [self.attend(q[r], k[r], v[r], allowed) for r in range(self.ranks)]
        out = [o.reshape(len(o), -1) for o, _ in found]
        branch, u = self.row_forward(out, f"{at}.attention.wo")

        def backward(dbranch, needs_input):
            dout = self.row_backward(out, f"{at}.attention.wo", dbranch, u)
            grads = [self.attend_backward(dout[r].reshape(q[r].shape), q[r], k[r], v[r], found[r][1])
                     for r in range(self.ranks)]
            flat = lambda y: y.reshape(len(y), -1)
            dys = [[flat(self.turn(g[0], position, -1)) for g in grads],
                   [flat(self.turn(g[1], position, -1)) for g in grads], [flat(g[2]) for g in grads]]
            dnormed = self.column_backward(inputs, names, dys, us, needs_input)
            if dnormed is None:
                return None
            return [self.norm_backward(dnormed[r], x[r], normed[r][1], f"{at}.attention_norm")
                    for r in range(self.ranks)]

        return branch, backward

    def mlp(self, at, x):
        names = [f"{at}.feed_forward.{w}" for w in ("w1", "w3")]
        normed = [self.norm(rows, f"{at}.ffn_norm") for rows in x]
        inputs = [n for n, _ in normed]
        (gate, up), us = self.column_forward(inputs, names)
        sigmoid = [1 / (1 + np.exp(-g)) for g in gate]
        hidden = [g * s * y for g, s, y in zip(gate, sigmoid, up)]
        branch, u = self.row_forward(hidden, f"{at}.feed_forward.w2")

        def backward(dbranch):
            dhidden = self.row_backward(hidden, f"{at}.feed_forward.w2", dbranch, u)
            dgate = [dhidden[r] * up[r] * sigmoid[r] * (1 + gate[r] * (1 - sigmoid[r])) for r in range(self.ranks)]
            dup = [dhidden[r] * gate[r] * sigmoid[r] for r in range(self.ranks)]
            dnormed = self.column_backward(inputs, names, [dgate, dup], us)
            return [self.norm_backward(dnormed[r], x[r], normed[r][1], f"{at}.ffn_norm") for r in range(self.ranks)]

        return branch, backward

    def step(self, token, target, position, allowed):
        """Loss, a mean over targets, and self.gradients of it: matrix -> (dA, dB). All arguments are of N rows."""
        x = np.split(self.weights["tok_embeddings"][token], self.ranks)
        backwards = []
        for layer in range(self.layers):
            for part in ("attention", "mlp"):
                branch, backward = (self.attention(f"layers.{layer}", x, position, allowed) if part == "attention"
                                    else self.mlp(f"layers.{layer}", x))
                backwards.append(backward)
                x = [a + b for a, b in zip(x, branch)]
        rows = gather(x)
        normed, inverse = self.norm(rows, "norm")
        logits = normed @ self.weights["output"].T
        logits -= logits.max(-1, keepdims=True)
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        counts = np.flatnonzero(target >= 0)
        loss = -np.log(p[counts, target[counts]]).sum() / len(counts)
        dlogits = np.zeros_like(p)
        dlogits[counts] = p[counts]
        dlogits[counts, target[counts]] -= 1
        dx = self.norm_backward(dlogits / len(counts) @ self.weights["output"], rows, inverse, "norm")
        dx = np.split(dx, self.ranks)
        for number in range(len(backwards) - 1, -1, -1):
            if number == 0:  # below are frozen weights alone: the first block's input needs no gradient
                assert backwards[0](dx, False) is None
            else:
                through = backwards[number](dx, True) if number % 2 == 0 else backwards[number](dx)
                dx = [a + b for a, b in zip(dx, through)]
        return loss


def adamw(weight, gradient, first, second, step, rate, betas, eps, decay):
    """torch.optim.AdamW: returns weight, first, second."""
    weight = weight * (1 - rate * decay)
    first = betas[0] * first + (1 - betas[0]) * gradient
    second = betas[1] * second + (1 - betas[1]) * gradient**2
    corrected = np.sqrt(second / (1 - betas[1]**step)) + eps
    return weight - rate * first / (1 - betas[0]**step) / corrected, first, second
