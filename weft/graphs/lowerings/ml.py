"""Classical models: the operators of ai.onnx.ml.

In: Tensors of features, or arrays of strings. Out: Tensors; class labels may be strings.
A family of the table of lowerings. Invariant: an ensemble of trees is walked level by level for
all samples and trees at once, as many levels as its deepest tree has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from weft.dtype import dtypes
from weft.graphs.lowerings.trees import TREE_MODES, Trees
from weft.graphs.model import StoredTensor
from weft.graphs.table import Call, Either, Host, lowers, refuse
from weft.graphs.types import Domain
from weft.tensor import Tensor

_DOMAIN = Domain.ONNX_ML


@lowers("ArrayFeatureExtractor", domain=_DOMAIN)
def array_feature_extractor(x: Any, indices: Host) -> Any:
    places = indices.reshape(-1).astype(numpy.int64)
    if isinstance(x, numpy.ndarray):
        return numpy.take(x, places, axis=-1)
    found = x[..., Tensor(places)]
    return found.reshape((1, -1)) if x.ndim == 1 else found


@lowers("Binarizer", domain=_DOMAIN)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)


# ------------------------------------------------------------ labels
def _mapped(x: Host, table: dict[Any, Any], default: Any, kind: Any) -> Host:
    found = numpy.empty(x.shape, dtype=kind)
    for place in numpy.ndindex(x.shape):
        key = x[place]
        key = key.item() if isinstance(key, numpy.generic) else key
        if isinstance(key, float) and math.isnan(key):
            key = "nan"
        found[place] = table.get(key, default)
    return found


@lowers("LabelEncoder", domain=_DOMAIN)
def label_encoder_classes(
    x: Host,
    *,
    classes_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Host:
    names = classes_strings or []
    if x.dtype == object:
        table: dict[Any, Any] = {name: i for i, name in enumerate(names)}
        return _mapped(x, table, default_int64, numpy.int64)
    return _mapped(x, dict(enumerate(names)), default_string, object)


@lowers("LabelEncoder", since=2, domain=_DOMAIN)
def label_encoder(
    x: Host,
    *,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: StoredTensor | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: StoredTensor | None = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: StoredTensor | None = None,
) -> Host:
    keys: Any = keys_floats or keys_int64s or keys_strings
    if keys is None:
        keys = [] if keys_tensor is None else keys_tensor.numpy().reshape(-1).tolist()
    keys = ["nan" if isinstance(k, float) and math.isnan(k) else k for k in keys]
    kind: Any
    if values_tensor is not None:
        array = values_tensor.numpy()
        values, kind = array.reshape(-1).tolist(), array.dtype
        fallback: Any = {"f": default_float, "i": default_int64}.get(kind.kind, default_string)
    elif values_strings is not None:
        values, kind, fallback = values_strings, numpy.dtype(object), default_string
    elif values_int64s is not None:
        values, kind, fallback = values_int64s, numpy.dtype(numpy.int64), default_int64
    else:
        values, kind = values_floats or [], numpy.dtype(numpy.float32)
        fallback = default_float
    if default_tensor is not None:
        fallback = default_tensor.numpy().reshape(-1)[0]
    return _mapped(x, dict(zip(keys, values, strict=False)), fallback, kind)


@lowers("CategoryMapper", domain=_DOMAIN)
def category_mapper(
    x: Host,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Host:
    pairs = list(zip(cats_strings or [], cats_int64s or [], strict=True))
    if x.dtype == object:
        return _mapped(x, dict(pairs), default_int64, numpy.int64)
    return _mapped(x, {number: name for name, number in pairs}, default_string, object)


@lowers("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(
    x: Either,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
    call: Call,
) -> Any:
    if isinstance(x, numpy.ndarray) and x.dtype == object:
        names = numpy.array(cats_strings or [], dtype=object)
        return (x[..., None] == names).astype(numpy.float32)
    labels = Tensor(cats_int64s or [], dtype=dtypes.int64)
    return call.tensor(x).cast(dtypes.int64).unsqueeze(-1).eq(labels).cast(dtypes.float32)


# ------------------------------------------------------------ features
@lowers("Scaler", domain=_DOMAIN)
def scaler(
    x: Tensor, *, offset: list[float] | None = None, scale: list[float] | None = None
) -> Tensor:
    moved = x.cast(dtypes.float32) - Tensor(offset or [0.0])
    return moved * Tensor(scale or [1.0])


@lowers("Normalizer", domain=_DOMAIN)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    wide = x.cast(dtypes.float32)
    if norm == "MAX":
        size = wide.max(-1, keepdim=True)
    elif norm == "L1":
        size = wide.abs().sum(-1, keepdim=True)
    elif norm == "L2":
        size = wide.square().sum(-1, keepdim=True).sqrt()
    else:
        raise refuse(f"norm is MAX, L1 or L2, found {norm!r}")
    return size.eq(0).where(wide, wide / size)


@lowers("Imputer", domain=_DOMAIN)
def imputer(
    x: Tensor,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    if dtypes.is_float(x.dtype):
        filling = Tensor(imputed_value_floats or [0.0], dtype=x.dtype)
        is_nan = math.isnan(replaced_value_float)
        return (x.isnan() if is_nan else x.eq(replaced_value_float)).where(filling, x)
    return x.eq(replaced_value_int64).where(Tensor(imputed_value_int64s or [0], dtype=x.dtype), x)


@lowers("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(*parts: Tensor, inputdimensions: list[int] | None = None) -> Tensor:
    rows = [part.reshape((part.shape[0] if part.ndim > 1 else 1, -1)) for part in parts]
    wide = [row.cast(dtypes.float32) for row in rows]
    return wide[0].cat(*wide[1:], dim=1) if len(wide) > 1 else wide[0]


@lowers("ZipMap", domain=_DOMAIN)
def zip_map(
    x: Host,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> list[Any]:
    labels: list[Any] = list(classlabels_strings or classlabels_int64s or [])
    rows = x.reshape((-1, len(labels))).tolist()
    return [dict(zip(labels, row, strict=True)) for row in rows]


# ------------------------------------------------------------ what scores become
def _transformed(scores: Tensor, transform: str) -> Tensor:
    if transform == "NONE":
        return scores
    if transform == "SOFTMAX":
        return scores.softmax(-1)
    if transform == "LOGISTIC":
        return scores.sigmoid()
    if transform == "SOFTMAX_ZERO":
        kept = scores.ne(0)
        powers = kept.where((scores - scores.max(-1, keepdim=True)).exp(), 0)
        return powers / powers.sum(-1, keepdim=True)
    if transform == "PROBIT":
        return _inverse_normal(scores)
    raise refuse(f"the post_transform {transform!r} is unknown")


def _inverse_normal(x: Tensor) -> Tensor:
    """sqrt(2) * erfinv(2 x - 1), by Winitzki's approximation, which ONNX Runtime uses too."""
    y = x * 2 - 1
    log = (1 - y * y).log()
    first = 2 / (math.pi * 0.147) + log * 0.5
    return ((first * first - log / 0.147).sqrt() - first).sqrt() * y.sign() * math.sqrt(2)


def _labels(scores: Tensor, names: list[str] | None, numbers: list[int] | None, call: Call) -> Any:
    """The label of the greatest score."""
    best = scores.argmax(-1)
    if names:
        table = numpy.array(names, dtype=object)
        return table[call.fetch(best)]
    return Tensor(list(numbers or range(scores.shape[-1])), dtype=dtypes.int64)[best]


def _two_classes(scores: Tensor, is_binary: bool, transform: str) -> tuple[Tensor, Tensor]:
    """Scores of both classes where a model has one number for two of them, and the same with the
    transform applied."""
    if not is_binary or scores.shape[-1] != 1:
        return scores, _transformed(scores, transform)
    if transform == "LOGISTIC":
        high = scores.sigmoid()
        return (-scores).cat(scores, dim=-1), (1 - high).cat(high, dim=-1)
    if transform in ("SOFTMAX", "SOFTMAX_ZERO"):
        both = (-scores).cat(scores, dim=-1)
        return both, _transformed(both, transform)
    both = (1 - scores).cat(scores, dim=-1)
    return both, both


# ------------------------------------------------------------ linear models and support vectors
@lowers("LinearRegressor", domain=_DOMAIN)
def linear_regressor(
    x: Tensor,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    weights = Tensor(list(coefficients)).reshape((targets, -1)).transpose()
    scores = x.cast(dtypes.float32).matmul(weights)
    scores = scores if not intercepts else scores + Tensor(list(intercepts))
    return _transformed(scores, post_transform)


@lowers("LinearClassifier", domain=_DOMAIN)
def linear_classifier(
    x: Tensor,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
    call: Call,
) -> tuple[Any, Tensor]:
    count = len(classlabels_strings or classlabels_ints or [0])
    features = x.shape[-1]
    rows = len(coefficients) // features
    weights = Tensor(list(coefficients)).reshape((rows, features)).transpose()
    scores = x.cast(dtypes.float32).matmul(weights)
    scores = scores if not intercepts else scores + Tensor(list(intercepts))
    if rows == 1 and count == 2:
        raw, shown = _two_classes(scores, True, post_transform)
        decided = (scores > (0 if post_transform != "NONE" else 0.5)).cast(dtypes.float32)
        raw = (1 - decided).cat(decided, dim=-1)
        return _labels(raw, classlabels_strings, classlabels_ints, call), shown
    shown = _transformed(scores, post_transform)
    return _labels(scores, classlabels_strings, classlabels_ints, call), shown


def _kernel(x: Tensor, vectors: Tensor, kind: str, parameters: list[float] | None) -> Tensor:
    gamma, coefficient, degree = (list(parameters or []) + [0.0, 0.0, 0.0])[:3]
    products = x.matmul(vectors.transpose())
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return (products * gamma + coefficient).pow(degree)
    if kind == "SIGMOID":
        return (products * gamma + coefficient).tanh()
    if kind == "RBF":
        distance = (x.unsqueeze(1) - vectors.unsqueeze(0)).square().sum(-1)
        return (distance * -gamma).exp()
    raise refuse(f"the kernel_type {kind!r} is unknown")


@lowers("SVMRegressor", domain=_DOMAIN)
def svm_regressor(
    x: Tensor,
    *,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float] | None = None,
    support_vectors: list[float] | None = None,
) -> Tensor:
    wide = x.cast(dtypes.float32)
    weights = Tensor(list(coefficients))
    if n_supports:
        vectors = Tensor(list(support_vectors or [])).reshape((n_supports, -1))
        products = _kernel(wide, vectors, kernel_type, kernel_params).matmul(weights)
    else:
        products = _kernel(wide, weights.reshape((1, -1)), kernel_type, kernel_params).squeeze(-1)
    total = products + (rho or [0.0])[0]
    total = (total > 0).where(1.0, -1.0) if one_class else total
    return _transformed(total.reshape((-1, 1)), post_transform)


# ------------------------------------------------------------ trees
def _numbers(stored: StoredTensor | list[Any] | None) -> list[Any]:
    if isinstance(stored, StoredTensor):
        found: list[Any] = stored.numpy().reshape(-1).tolist()
        return found
    return list(stored or [])


def _old_trees(
    tree: list[int],
    node: list[int],
    feature: list[int],
    value: list[Any],
    modes: list[str],
    yes: list[int],
    no: list[int],
    missing: list[int] | None,
    leaves: list[tuple[int, int, int, float]],
) -> Trees:
    """From the form in which a node is named by its tree and its number there."""
    trees = Trees()
    places: dict[tuple[int, int], int] = {}
    for i, key in enumerate(zip(tree, node, strict=True)):
        if modes[i] not in TREE_MODES:
            raise refuse(f"the mode {modes[i]!r} of a node is unknown")
        places[key] = trees.add(
            feature[i], value[i], TREE_MODES[modes[i]], (missing or [0] * len(tree))[i]
        )
        if key[1] == 0 or key[0] not in {t for t, _ in list(places)[:-1]}:
            if key[0] not in [tree[j] for j in range(i)]:
                trees.roots.append(places[key])
    for i, key in enumerate(zip(tree, node, strict=True)):
        if modes[i] != "LEAF":
            trees.yes[places[key]] = places[(key[0], yes[i])]
            trees.no[places[key]] = places[(key[0], no[i])]
        else:
            trees.feature[places[key]] = 0
    for number, place, target, weight in leaves:
        weights = trees.weights[places[(number, place)]]
        weights[target] = weights.get(target, 0.0) + weight
    return trees


@lowers("TreeEnsembleRegressor", domain=_DOMAIN)
def tree_ensemble_regressor(
    x: Tensor,
    *,
    aggregate_function: str = "SUM",
    base_values: list[float] | None = None,
    base_values_as_tensor: StoredTensor | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: Any = None,
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: StoredTensor | None = None,
    post_transform: str = "NONE",
    target_ids: list[int],
    target_nodeids: list[int],
    target_treeids: list[int],
    target_weights: list[float] | None = None,
    target_weights_as_tensor: StoredTensor | None = None,
) -> Tensor:
    weights = _numbers(target_weights_as_tensor or target_weights)
    trees = _old_trees(
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        _numbers(nodes_values_as_tensor or nodes_values),
        nodes_modes,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        list(zip(target_treeids, target_nodeids, target_ids, weights, strict=True)),
    )
    base = _numbers(base_values_as_tensor or base_values) or None
    scores = trees.scores(x, n_targets, aggregate_function, base)
    return _transformed(scores.cast(dtypes.float32), post_transform)


@lowers("TreeEnsembleClassifier", domain=_DOMAIN)
def tree_ensemble_classifier(
    x: Tensor,
    *,
    base_values: list[float] | None = None,
    base_values_as_tensor: StoredTensor | None = None,
    class_ids: list[int],
    class_nodeids: list[int],
    class_treeids: list[int],
    class_weights: list[float] | None = None,
    class_weights_as_tensor: StoredTensor | None = None,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: Any = None,
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: StoredTensor | None = None,
    post_transform: str = "NONE",
    call: Call,
) -> tuple[Any, Tensor]:
    weights = _numbers(class_weights_as_tensor or class_weights)
    trees = _old_trees(
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        _numbers(nodes_values_as_tensor or nodes_values),
        nodes_modes,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        list(zip(class_treeids, class_nodeids, class_ids, weights, strict=True)),
    )
    count = len(classlabels_strings or classlabels_int64s or [])
    base = _numbers(base_values_as_tensor or base_values) or None
    is_binary = count == 2 and len(set(class_ids)) == 1
    targets = 1 if is_binary else count
    scores = trees.scores(x, targets, "SUM", base).cast(dtypes.float32)
    if is_binary:
        positive = class_weights is None or min(weights, default=0) >= 0
        raw, shown = _two_classes(scores, True, post_transform)
        decided = (scores > (0.5 if positive and post_transform == "NONE" else 0)).cast(
            scores.dtype
        )
        raw = (1 - decided).cat(decided, dim=-1)
        return _labels(raw, classlabels_strings, classlabels_int64s, call), shown
    shown = _transformed(scores, post_transform)
    return _labels(scores, classlabels_strings, classlabels_int64s, call), shown


@lowers("TreeEnsemble", since=5, domain=_DOMAIN)
def tree_ensemble(
    x: Tensor,
    *,
    aggregate_function: int = 1,
    leaf_targetids: list[int],
    leaf_weights: StoredTensor,
    membership_values: StoredTensor | None = None,
    n_targets: int = 1,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: StoredTensor | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: StoredTensor,
    nodes_splits: StoredTensor,
    nodes_truenodeids: list[int],
    nodes_trueleafs: list[int],
    post_transform: int = 0,
    tree_roots: list[int],
) -> Tensor:
    trees = Trees()
    modes, splits = _numbers(nodes_modes), _numbers(nodes_splits)
    missing = nodes_missing_value_tracks_true or [0] * len(modes)
    sets: list[list[float]] = [[]]
    for number in _numbers(membership_values):
        if math.isnan(number):
            sets.append([])
        else:
            sets[-1].append(number)
    members = iter(sets)
    for i, mode in enumerate(modes):
        node = trees.add(nodes_featureids[i], splits[i], int(mode), missing[i])
        if mode == 6:
            trees.members[node] = next(members, [])
    first_leaf = len(modes)
    for target, weight in zip(leaf_targetids, _numbers(leaf_weights), strict=True):
        leaf = trees.add(0, 0.0, 0)
        trees.weights[leaf] = {target: weight}
    for i in range(first_leaf):
        trees.yes[i] = nodes_truenodeids[i] + (first_leaf if nodes_trueleafs[i] else 0)
        trees.no[i] = nodes_falsenodeids[i] + (first_leaf if nodes_falseleafs[i] else 0)
        if max(trees.yes[i], trees.no[i]) >= len(trees.feature):
            raise refuse(f"node {i} leads to a node that does not exist")
    trees.roots = list(tree_roots)
    aggregates = ("AVERAGE", "SUM", "MIN", "MAX")
    transforms = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    scores = trees.scores(x, n_targets, aggregates[aggregate_function], None)
    return _transformed(scores, transforms[post_transform]).cast(x.dtype)
