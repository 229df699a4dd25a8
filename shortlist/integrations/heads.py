"""Output layers of this library on networks of others: Hugging Face, timm, torchvision, or your own."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from shortlist.data.encoders.backbones import classifier_of, replace_module

__all__ = ["output_layer", "use_head"]

Model = TypeVar("Model", bound=nn.Module)


def output_layer(model: nn.Module) -> tuple[str, nn.Module]:
    """The name and the module of a network's classifier.

    That of timm's models is the one they name themselves; that of Hugging Face's the last linear layer with as many
    outputs as the configuration has labels; of others it is the last linear layer, or else the last convolution.

    Example:
        >>> output_layer(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)))
        ('1', Linear(in_features=8, out_features=3, bias=True))
    """
    own: Any = getattr(model, "get_classifier", None)
    modules = dict(model.named_modules())
    if own is not None:
        found = own()
        names = [name for name, module in modules.items() if module is found]
        if names:
            return names[0], found
    labels = getattr(getattr(model, "config", None), "num_labels", None)
    fitting = [
        (name, module)
        for name, module in modules.items()
        if isinstance(module, nn.Linear) and module.out_features == labels
    ]
    return fitting[-1] if fitting else classifier_of(model)


def use_head(model: Model, head: nn.Module) -> Model:
    """Replace the classifier of a network by another output layer, in place.

    Args:
        model: a network with one classifier: ``AutoModelForSequenceClassification``, ``timm.create_model(...)``,
            ``torchvision.models.resnet18()``, or any module that ends in a linear layer.
        head: an output layer of :mod:`shortlist.nn`, or any module with ``in_features``.

    Returns:
        The model.

    Raises:
        ValueError: if the head takes another number of features than the classifier did.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> use_head(model, DFTHead(8, 100, k=2))(torch.zeros(5, 4)).shape
        torch.Size([5, 100])
    """
    name, layer = output_layer(model)
    if not name:
        raise ValueError("`model` must contain its classifier; it is nothing but a classifier.")
    before = getattr(layer, "in_features", getattr(layer, "in_channels", None))
    features = getattr(head, "in_features", None)
    if before is not None and features is not None and features != before:
        raise ValueError(f"`head` must take {before} features, as `{name}` does; it takes {features}.")
    replace_module(model, name, head)
    labels = getattr(head, "num_labels", getattr(head, "out_features", None))
    if labels is not None:
        # What Hugging Face and timm keep of the number of outputs.
        for owner, attribute in (
            (getattr(model, "config", None), "num_labels"),
            (model, "num_labels"),
            (model, "num_classes"),
        ):
            if hasattr(owner, attribute):
                setattr(owner, attribute, labels)
    return model
