"""Whether offered weights fit a served model."""

from collections.abc import Iterable

from infra.weights_folder import Shapes, WeightsFolder, WeightsMismatch


def require_architecture(offered: WeightsFolder, served: Iterable[str]) -> None:
    """WeightsMismatch unless the weights are of the served architecture."""
    if offered.architectures != tuple(served):
        raise WeightsMismatch(
            f"{offered.folder} holds a {', '.join(offered.architectures) or 'model without architecture'}, "
            f"this engine serves a {', '.join(served)}"
        )


def require_complete(offered: WeightsFolder, served: Iterable[str]) -> None:
    """WeightsMismatch unless the folder has every served tensor."""
    names = list(served)
    missing = sorted(set(names) - offered.names)
    if missing:
        raise WeightsMismatch(
            f"{offered.folder} lacks {len(missing)} of {len(names)} tensors (first: {missing[0]}): "
            "give all the weights of the served architecture"
        )


def require_fit(offered: Shapes, served: Shapes) -> None:
    """WeightsMismatch unless every offered tensor is served, in that shape."""
    unknown = sorted(offered.keys() - served.keys())
    if unknown:
        raise WeightsMismatch(f"{len(unknown)} names are not of the served model (first: {unknown[0]})")
    for name, shape in offered.items():
        if shape != served[name]:
            raise WeightsMismatch(
                f"{name} has shape {list(shape)}, the served model needs {list(served[name])}"
            )
